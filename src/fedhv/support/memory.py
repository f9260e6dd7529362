"""How much memory processes hold for themselves."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path


def held_memory(others: Iterable[int] = ()) -> int:
    """Bytes that this process and others (by process id) hold and share with nobody.

    Where the system does not tell (it does on Linux), what this process has held at most, shared or not.
    """
    try:
        return sum(_private(process) for process in ("self", *map(str, others)))
    except OSError:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _private(process: str) -> int:
    lines = Path("/proc", process, "smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))
