"""A cohort too large to be answered at once, answered part by part: of each part only its sums are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from fedhv.protocol.cohort import Cohort
from fedhv.protocol.messages import Refusal, Replies, Request, TaskUpdateReplies, TaskUpdates, Train, TrainReplies

MOST = 256
"""So many clients are answered at once; more fill no GPU better."""


def parts(request: Request, cohort: Cohort, most: int = MOST) -> list[Cohort]:
    """The cohort in parts of nearly equal size; whole where clients keep something for the rest of the round."""
    if not isinstance(request, Train | TaskUpdates) or len(cohort) <= most:
        return [cohort]
    count = -(-len(cohort) // most)
    size = -(-len(cohort) // count)  # all but the last are of one size, for which one recording is enough
    return [replace(cohort, clients=cohort.clients[i : i + size]) for i in range(0, len(cohort), size)]


def in_parts(ask: Callable[[Request, Cohort], Replies], request: Request, cohort: Cohort, most: int = MOST) -> Replies:
    """The cohort's answers from those of its parts, one part at a time."""
    pieces = parts(request, cohort, most)
    if len(pieces) == 1:
        return ask(request, cohort)
    return _together(cohort, (ask(request, piece) for piece in pieces))


def _together(cohort: Cohort, replies: Iterator[Replies]) -> Replies:
    """One answer from those of the parts: sums of sums, and reports side by side."""
    total: Tensor | None = None
    last: Replies | None = None
    clients: list[int] = []
    reports: list[Tensor] = []
    refused: list[Refusal] = []
    for last in replies:
        assert isinstance(last, TrainReplies | TaskUpdateReplies)
        mean = last.mean_update if isinstance(last, TrainReplies) else last.mean_updates
        share = mean * len(last.cohort)
        total = share if total is None else total.add_(share)
        clients += last.cohort.clients
        refused += last.refused
        if isinstance(last, TrainReplies) and last.reports is not None:
            reports.append(last.reports)
    assert total is not None
    taken = replace(cohort, clients=clients)
    total.div_(max(1, len(taken)))
    if isinstance(last, TrainReplies):
        together = torch.cat(reports) if reports else None
        return TrainReplies(taken, last.layout, total, together, refused=tuple(refused))
    assert isinstance(last, TaskUpdateReplies)
    return TaskUpdateReplies(taken, last.layout, total, refused=tuple(refused))
