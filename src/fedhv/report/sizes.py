"""Bytes as text: megabytes with enough digits for the smallest number of a column, or one number in its own unit."""

from __future__ import annotations

import math
from collections.abc import Iterable

MOST = 6
"""Digits after the decimal point: a byte."""


def megabyte_digits(counts: Iterable[float], least: int) -> int:
    """The digits after the decimal point with which the smallest of these numbers of bytes has two digits as MB."""
    smallest = min((count for count in counts if count > 0), default=1e6)
    return min(MOST, max(least, 1 - math.floor(math.log10(smallest / 1e6))))


def size_text(count: float) -> str:
    """For example "61.44 kB" or "1.00 MB" (10³ and 10⁶ bytes)."""
    small = round(count / 1e3, 2) < 1000
    return f"{count / 1e3:.2f} kB" if small else f"{count / 1e6:.2f} MB"
