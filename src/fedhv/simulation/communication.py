"""The communication of a method, counted from its requests in one round of a very small problem."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from fedhv.engines.sequential import Sequential
from fedhv.methods.base import Method, needs_reference, with_reference
from fedhv.problem.problem import Problem
from fedhv.problem.tasks import regression
from fedhv.protocol.local import LocalTraining
from fedhv.protocol.traffic import BYTES_PER_SCALAR
from fedhv.simulation.plan import Plan
from fedhv.simulation.rounds import simulate

TASKS, CLIENTS = 3, 2


@dataclass(frozen=True)
class RoundCommunication:
    """Scalars of one client in one round.

    Attributes:
        down: To the client.
        up: From the client.
        model: d, the scalars of the model: a plain exchange sends it down and its update up.
        exchanges: The number of exchanges per round.
    """

    down: int
    up: int
    model: int
    exchanges: int

    @property
    def extra(self) -> int:
        """Scalars per round beyond the model and its update; negative if there are fewer."""
        return self.down + self.up - 2 * self.model


class _Network(nn.Module):
    """A thousand shared parameters and heads of ten, so that counts are easy to read."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(99, 10)
        self.heads = nn.ModuleList(nn.Linear(9, 1) for _ in range(TASKS))

    def forward(self, inputs: Tensor) -> list[Tensor]:
        features = self.shared(inputs)
        return [head(features[:, :9]) for head in self.heads]


def communication(method: Method) -> RoundCommunication:
    """The scalars that a method sends per client and round, for three tasks and a model of 1,030 parameters."""
    if needs_reference(method):
        method = with_reference(method, (1e6,) * TASKS)
    engine = _engine()
    plan = Plan(1, CLIENTS, LocalTraining(steps=1, batch_size=2, learning_rate=1e-6), evaluate_every=0)
    (finished,) = simulate(engine, method, plan)
    scalars = CLIENTS * BYTES_PER_SCALAR
    return RoundCommunication(
        finished.traffic.down // scalars, finished.traffic.up // scalars, engine.layout.d, finished.exchanges
    )


@cache
def _engine() -> Sequential:
    torch_data = (torch.linspace(-1, 1, 4 * 99).reshape(4, 99), [torch.ones(4, 1)] * TASKS)
    tasks = [regression(f"task {i + 1}", 1.0) for i in range(TASKS)]
    return Sequential(Problem.from_clients(_Network, tasks, [torch_data] * CLIENTS, test=torch_data))
