"""How many cores this process may use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """The number of cores that this process may use, at least one.

    `taskset`, containers and batch systems often allow fewer cores than the machine has. More workers than cores would
    wait for each other.
    """
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1
