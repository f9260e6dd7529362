"""The protocol between server and clients: requests, replies, cohorts, the client, screening, traffic."""
