"""Keep freed memory in the process, instead of returning it to the system at every step.

A step of a small network allocates and frees tensors of tens of megabytes. By default the C library returns blocks of
that size to the system at once. Every new allocation then causes a page fault per 4 KiB, which took a quarter of a
training step on a CPU.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of `mallopt`: the size above which free memory at the top of the heap is returned, and the size above
which blocks are mapped."""
NEVER = 2**31 - 1
USUAL = 32 * 2**20
"""The value that the C library's adaptive threshold reaches after large blocks were freed."""


def keep_freed_memory() -> bool:
    """Keep freed memory in the process from now on. False if the C library does not support it."""
    mallopt = _function("mallopt")
    return mallopt is not None and bool(mallopt(MMAP_THRESHOLD, 2**30)) and bool(mallopt(TRIM_THRESHOLD, NEVER))


def give_memory_back() -> None:
    """Restore the default and return unused memory to the system."""
    mallopt, trim = _function("mallopt"), _function("malloc_trim")
    if mallopt is not None and trim is not None:
        mallopt(MMAP_THRESHOLD, USUAL)
        mallopt(TRIM_THRESHOLD, 2 * USUAL)
        trim(0)


@cache
def _function(name: str) -> Callable[..., int] | None:
    """A function of the GNU C library; None with any other library."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        function: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None
    return function
