"""The round loop, its records and its observers."""
