"""What a server asks and what a client does: requests, replies, cohorts, the client."""
