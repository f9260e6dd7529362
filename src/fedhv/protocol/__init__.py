"""The protocol between server and clients: requests, replies, cohorts, the client, evaluation, screening, traffic."""
