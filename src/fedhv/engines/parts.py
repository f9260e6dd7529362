"""A cohort too large to be answered at once, answered part by part: of each part only its sums are kept."""

from __future__ import annotations

from collections.abc import Sequence

MOST = 256
"""The largest number of clients that are answered at once; more fill no GPU better."""


def parts(clients: Sequence[int], most: int = MOST) -> list[Sequence[int]]:
    """The clients in parts of nearly equal size: all but the last are of one size, which is recorded once."""
    count = max(1, -(-len(clients) // most))
    size = -(-len(clients) // count)
    return [clients[i : i + size] for i in range(0, len(clients), size)]
