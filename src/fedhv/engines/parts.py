"""Large cohorts in parts: only the sums of each part are kept."""

from __future__ import annotations

from collections.abc import Sequence

MOST = 256
"""The largest number of clients that are computed at once. More do not use a GPU better."""


def parts(clients: Sequence[int], most: int = MOST) -> list[Sequence[int]]:
    """The clients in parts of nearly equal size. All but the last have the same size, which is recorded once."""
    count = max(1, -(-len(clients) // most))
    size = -(-len(clients) // count)
    return [clients[i : i + size] for i in range(0, len(clients), size)]
