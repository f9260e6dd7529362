"""One small problem in all the forms in which people have data."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from fedhv import LocalTraining, classification, regression
from fedhv.engines import ENGINES
from fedhv.methods import FedHV
from fedhv.simulation.rounds import Plan, simulate

TASKS = (classification("risk", 2), regression("stay", 0.5))


class Net(nn.Module):
    """One input."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 5), nn.Tanh())
        self.heads = nn.ModuleList([nn.Linear(5, 2), nn.Linear(5, 1)])

    def forward(self, x: Tensor) -> list[Tensor]:
        shared = self.trunk(x)
        return [head(shared) for head in self.heads]


class TwoParts(Net):
    """The same network whose input comes in two parts."""

    def forward(self, left: Tensor, right: Tensor) -> list[Tensor]:
        return super().forward(torch.cat([left, right], dim=1))


class Words(nn.Module):
    """The mean of the embeddings of the tokens that are there."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 4)
        self.heads = nn.ModuleList([nn.Linear(4, 2), nn.Linear(4, 1)])

    def forward(self, tokens: Tensor, mask: Tensor) -> list[Tensor]:
        there = mask[..., None].float()
        mean = (self.embedding(tokens) * there).sum(dim=1) / there.sum(dim=1)
        return [head(mean) for head in self.heads]


def arrays(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 4)).astype(np.float32)
    return x, [(x[:, 0] > 0).astype(np.int64), (3 + x[:, 1]).astype(np.float32)]


def clients(sizes=(7, 12, 5)):
    return [arrays(n, seed=k + 1) for k, n in enumerate(sizes)]


def sentences(n, seed=0):
    rng = np.random.default_rng(seed)
    tokens = [rng.integers(1, 20, size=rng.integers(1, 9)) for _ in range(n)]
    return tokens, [np.array([len(t) % 2 for t in tokens]), np.array([len(t) / 4 for t in tokens], np.float32)]


def trained(problem, engine="sequential"):
    """The model and the test losses after two rounds of FedHV."""
    plan = Plan(rounds=2, participants=len(problem.clients), local=LocalTraining(3, 4, 0.1))
    with ENGINES[engine](problem, "cpu") as running:
        last = list(simulate(running, FedHV(reference=(9.0, 99.0)), plan))[-1]
    return last.state.model, [task.loss for task in last.evaluation.tasks]
