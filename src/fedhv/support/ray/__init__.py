"""Ray clusters: the connection, messages, and a pool of workers. Ray is imported when it is used."""
