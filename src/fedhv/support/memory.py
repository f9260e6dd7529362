"""Private memory of processes."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path


def held_memory(others: Iterable[int] = ()) -> int:
    """The private (unshared) bytes of this process and of others, given by process id.

    Systems other than Linux do not report this; there it is the peak memory of this process, shared memory included,
    and 0 on Windows.
    """
    try:
        return sum(_private(process) for process in ("self", *map(str, others)))
    except OSError:
        try:
            import resource
        except ImportError:
            return 0
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _private(process: str) -> int:
    lines = Path("/proc", process, "smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))
