"""Scripts of many clients, advanced in step: what all of them wait for is computed together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fedhv.protocol.script import Computation, Member, Script

Waiting = tuple[Computation, Member]
"""A pending computation of a client's script."""


def advance(
    scripts: Sequence[tuple[Script, Member]], compute: Callable[[Sequence[Waiting]], Sequence[Any]]
) -> list[Any]:
    """The replies that the scripts return; `compute` gives the results of all pending computations at once."""
    replies: list[Any] = [None] * len(scripts)
    sent: dict[int, Any] = dict.fromkeys(range(len(scripts)))
    while sent:
        wanted: dict[int, Any] = {}
        for i, result in sent.items():
            try:
                wanted[i] = scripts[i][0].send(result)
            except StopIteration as end:
                replies[i] = end.value
        several = {i: each if isinstance(each, list) else [each] for i, each in wanted.items()}
        results = iter(compute([(computation, scripts[i][1]) for i, some in several.items() for computation in some]))
        found = {i: [next(results) for _ in some] for i, some in several.items()}
        sent = {i: found[i] if isinstance(wanted[i], list) else found[i][0] for i in wanted}
    return replies
