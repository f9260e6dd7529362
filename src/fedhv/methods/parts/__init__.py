"""Parts that go around the round of any method that reads reports; each is a conversation around a conversation."""
