"""Helpers that do not depend on federated learning: errors, numbers, files, processes, the terminal."""
