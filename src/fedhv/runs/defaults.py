"""What a study takes where nothing else is said. Apart from `study`, so that the command line's help can name it."""

SEEDS = (0, 42, 2026)
"""The paper's."""
EXECUTORS = ("processes", "ray")
"""Where several runs go: processes of this machine, or a Ray cluster."""
