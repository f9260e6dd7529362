"""Parts that wrap the round of any method that reads reports: each maps a conversation to a conversation."""
