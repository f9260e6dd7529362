"""Sums of replies over a cohort, as a tree of a fixed shape.

The order of additions decides the last bits of a sum. Here it depends on nothing but the places of clients in the
cohort: the replies of 32 clients are added one by one, then eight such sums, then the sums of 256 clients. Whoever
computes one of these sums, the result has the same bits. So one machine and the workers of a cluster agree, and a
worker returns one sum for its clients. A cohort of at most 32 clients is one plain sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedhv.protocol.request import ClientReply, Refusal, Reply

SIZES = (1, 32, 256)
"""The number of clients of a whole sum at each level. A sum above the last level has any number of clients."""


@dataclass
class Partial:
    """The combined replies of some clients, in the order of the cohort.

    Only `totals`, `counts` and small tensors are filled, unless the server compares replies or a method requests all.

    Attributes:
        totals: The weighted sum of every tensor that is averaged.
        counts: The sum of the clients' shares in it, where shares differ.
        stacks: Tensors that are not averaged: pieces with one row for every client.
        each: The single replies.
        taken: The clients whose replies were accepted.
        waiting: Clients and replies that are compared with each other before they are summed.
        robust: The single tensors of a robust mean.
        norms: Clients and the norms of their updates.
        refused: The clients whose replies were refused.
    """

    totals: dict[str, Tensor] = field(default_factory=dict)
    counts: dict[str, Tensor] = field(default_factory=dict)
    stacks: dict[str, list[Tensor]] = field(default_factory=dict)
    each: list[ClientReply] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    waiting: list[tuple[list[int], list[Reply]]] = field(default_factory=list)
    robust: dict[str, list[Tensor]] = field(default_factory=dict)
    norms: list[tuple[Sequence[int], Tensor]] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)

    def add(self, other: Partial) -> None:
        """Add the replies of the clients that follow. `other` must not be used afterwards: its memory may be taken."""
        for mine, theirs in ((self.totals, other.totals), (self.counts, other.counts)):
            for name, value in theirs.items():
                mine[name] = mine[name].add_(value) if name in mine else value
        for own, more in ((self.stacks, other.stacks), (self.robust, other.robust)):
            for name, values in more.items():
                own.setdefault(name, []).extend(values)
        for name in ("each", "taken", "waiting", "norms", "refused"):
            getattr(self, name).extend(getattr(other, name))

    def joined(self) -> Partial:
        """The same with few tensors, to be sent."""
        self.stacks = {name: [torch.cat(found)] for name, found in self.stacks.items() if found}
        if self.norms:
            clients = [k for some, _ in self.norms for k in some]
            self.norms = [(clients, torch.cat([found for _, found in self.norms]))]
        return self


class Sums:
    """Adds the sums of consecutive clients up to the sum of the cohort."""

    def __init__(self) -> None:
        self._open = [Partial() for _ in SIZES]
        """At each level the sum above it that is not yet whole."""
        self._held = [0] * len(SIZES)
        """The number of sums of the level below in it."""

    def add(self, part: Partial, level: int) -> None:
        """Add the sum of the next clients: `SIZES[level]` of them, or fewer at the end of the cohort."""
        self._open[level].add(part)
        self._held[level] += 1
        if level + 1 < len(SIZES) and self._held[level] * SIZES[level] == SIZES[level + 1]:
            self._close(level)

    def total(self) -> Partial:
        """The sum of everything. Nothing can be added afterwards."""
        for level in range(len(SIZES) - 1):
            if self._held[level]:
                self._close(level)
        return self._open[-1]

    def _close(self, level: int) -> None:
        whole, self._open[level], self._held[level] = self._open[level], Partial(), 0
        self.add(whole, level + 1)
