"""The weights of clients in a mean: equal, by examples, or by labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedhv.problem.labels import Holding
from fedhv.problem.parameters import Layout
from fedhv.protocol.fields import TensorField

Average = Literal["clients", "examples", "labels"]
"""Clients have equal weights, or weights in proportion to their examples or labels."""


@dataclass(frozen=True)
class Shares:
    """The shares (weights) of clients in a mean.

    A client has a share in a task only if it has labels of it. Heads are averaged over the clients that trained them,
    shared parameters over all clients.
    """

    average: Average

    def tasks(self, m: int, holdings: Sequence[Holding]) -> Tensor:
        """For every client and task, n × m."""
        labels = torch.tensor([each.of(m) for each in holdings], dtype=torch.float64).view(-1, m)
        match self.average:
            case "labels":
                return labels
            case "examples":
                sizes = torch.tensor([each.examples for each in holdings], dtype=torch.float64)
                return (labels > 0) * sizes[:, None]
        return (labels > 0).double()

    def whole(self, m: int, holdings: Sequence[Holding]) -> Tensor:
        """For every client, in the shared parameters."""
        match self.average:
            case "labels":
                return torch.tensor([sum(each.of(m)) / m for each in holdings], dtype=torch.float64)
            case "examples":
                return torch.tensor([float(each.examples) for each in holdings], dtype=torch.float64)
        return torch.ones(len(holdings), dtype=torch.float64)

    def of(self, about: TensorField, layout: Layout, holdings: Sequence[Holding], like: Tensor) -> Tensor:
        """The shares in a tensor of the replies, of a shape that broadcasts with `like`, the clients' stack of it."""
        tasks, whole = (each(layout.tasks, holdings).to(like) for each in (self.tasks, self.whole))
        axes = about.axes or ()
        if axes[:1] == ("m",):
            return tasks.view(*tasks.shape, *[1] * (len(axes) - 1))
        if axes == ("d",):
            return layout.spread(whole, tasks)
        return whole.view(-1, *[1] * len(axes))
