"""The defaults of a study, in their own module so that the command line's help needs no other imports."""

SEEDS = (0, 42, 2026)
"""The paper's."""
BASELINES = ("single-task", "local", "pooled")
"""What methods are compared with; see `fedhv.runs.baselines`."""
EXECUTORS = ("processes", "ray")
"""Where the runs of a study are computed: processes of this machine, or a Ray cluster."""
