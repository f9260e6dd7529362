"""How many cores this process may use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """The cores that this process is allowed to run on, at least one.

    `taskset`, containers and batch systems often allow fewer than the machine has: more workers than those would only
    wait for each other.
    """
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1
