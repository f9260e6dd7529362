"""A small problem with mixed tasks: ROC-AUC and RMSE, four unequal clients, one of them without the second task."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from fedhv import Problem, classification, regression

SIZES = (40, 60, 30, 20)
CHANGES = ["federation.participants=3", "training.local_steps=3", "training.batch_size=10", "federation.validation=0.3"]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(3, 6)
        self.heads = nn.ModuleList([nn.Linear(6, 2), nn.Linear(6, 1)])

    def forward(self, inputs: Tensor) -> list[Tensor]:
        return [head(torch.tanh(self.shared(inputs))) for head in self.heads]


def mixed(metrics: bool = True) -> Problem:
    """Labels depend on the inputs with noise, so that training for long overfits."""
    draws = np.random.default_rng(0)

    def one(n: int, stay: bool = True) -> tuple[np.ndarray, list[np.ndarray | None]]:
        x = draws.normal(size=(n, 3)).astype(np.float32)
        kind = (x[:, 0] + draws.normal(size=n) > 0).astype(np.int64)
        return x, [kind, (x[:, 1] + draws.normal(size=n)).astype(np.float32) if stay else None]

    given = (["roc_auc"], ["rmse", "r2"]) if metrics else ([], [])
    tasks = [classification("kind", 2, metrics=given[0]), regression("stay", 0.5, metrics=given[1])]
    clients = [one(n, stay=k != 1) for k, n in enumerate(SIZES)]
    return Problem.from_clients(Net, tasks, clients, test=one(50), name="mixed")
