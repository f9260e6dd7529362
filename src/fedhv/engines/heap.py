"""Keeping the memory that tensors give back, instead of asking the system for it again at every step.

A step of a small network makes and drops tensors of tens of megabytes. By default the C library returns blocks of
that size to the system at once, and gets them back empty, a page fault for every 4 KiB: on a CPU that took a
quarter of a training step.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""`mallopt`'s names for: give back the top of the heap from this size on; ask the system for blocks of this size."""
NEVER = 2**31 - 1
USUAL = 32 * 2**20
"""Where the C library's own adaptive threshold ends up after large blocks were freed."""


def keep_freed_memory() -> bool:
    """From now on memory stays with the process when tensors are dropped; False where this cannot be asked for."""
    mallopt = _function("mallopt")
    return mallopt is not None and bool(mallopt(MMAP_THRESHOLD, 2**30)) and bool(mallopt(TRIM_THRESHOLD, NEVER))


def give_memory_back() -> None:
    """Return to the usual and give unused memory to the system."""
    mallopt, trim = _function("mallopt"), _function("malloc_trim")
    if mallopt is not None and trim is not None:
        mallopt(MMAP_THRESHOLD, USUAL)
        mallopt(TRIM_THRESHOLD, 2 * USUAL)
        trim(0)


@cache
def _function(name: str) -> Callable[..., int] | None:
    """A function of the GNU C library; None with any other."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        function: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None
    return function
