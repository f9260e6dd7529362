"""What the clients of a stack compute, one by one: steps from a model under some weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedhv.protocol.client import GRADIENT_PART
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.messages import GramTerms, Request, TaskGradients, TaskUpdates, Train


@dataclass(frozen=True)
class Trajectory:
    """What one client is to compute: K steps from a model under some weights, or a single gradient there.

    Attributes:
        cohort: Whose member the client is; fixes the round, the seed and the hyper-parameters.
        client: k.
        model: θ.
        weights: w.
        part: Which part of the client's random stream; from `GRADIENT_PART` on it is a single gradient.
        first: The gradient of the first step, where it is known already.
    """

    cohort: Cohort
    client: int
    model: Tensor
    weights: Tensor
    part: int = 0
    first: Tensor | None = None

    @property
    def shape(self) -> Shape:
        """Trajectories of one shape can be stacked."""
        local = self.cohort.local
        single, known = self.part >= GRADIENT_PART, self.first is not None
        return Shape(1 if single else local.steps - known, local.batch_size, local.momentum, single, known)


@dataclass(frozen=True)
class Shape:
    """All that trajectories in one stack must have in common; learning rates may differ."""

    minibatches: int
    batch_size: int
    momentum: float
    single: bool
    known: bool


def trajectories(request: Request, cohort: Cohort, m: int) -> list[Trajectory]:
    """What the clients of a cohort compute for a request about m tasks."""
    match request:
        case Train(theta, weights, _, first):
            w = torch.full((m,), 1 / m) if weights is None else weights
            kept = None if first is None else [w.to(theta) @ first.of(k).kept for k in cohort.clients]
            return [
                Trajectory(cohort, k, theta, w, first=None if kept is None else kept[j])
                for j, k in enumerate(cohort.clients)
            ]
        case TaskUpdates(theta):
            return [Trajectory(cohort, k, theta, w, i) for k in cohort.clients for i, w in enumerate(torch.eye(m))]
        case TaskGradients(theta):
            return [
                Trajectory(cohort, k, theta, w, GRADIENT_PART + i)
                for k in cohort.clients
                for i, w in enumerate(torch.eye(m))
            ]
        case GramTerms():
            return []
