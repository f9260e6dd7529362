"""A federation whose nodes misbehave by plan."""
