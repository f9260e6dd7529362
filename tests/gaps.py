"""Small problems in which labels are missing."""

from __future__ import annotations

import numpy as np
import torch
from problems import POINTS, Point, half_square, within_one
from torch import Tensor, nn

from fedhv import Problem, Task, classification, multilabel, regression

NAN = np.nan


def half_labelled() -> Problem:
    """`problems.quadratic`, but client 0 has one label of two of the left task, and client 1 none of the right one."""
    spread = torch.tensor([[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    targets = [[torch.tensor(POINTS[k][i]) + spread for i in range(2)] for k in sorted(POINTS)]
    test = (torch.zeros(2, 1), [each.clone() for each in targets[0]])
    targets[0][0][0] = NAN
    tasks = [Task(name, half_square, within_one) for name in ("left", "right")]
    clients = [(torch.zeros(2, 1), targets[0]), (torch.zeros(2, 1), [targets[1][0], None])]
    return Problem.from_clients(Point, tasks, clients, test=test, name="half labelled")


TASKS = (classification("kind", 3), multilabel("marks", 3), regression("place", 0.5))


class Net(nn.Module):
    """Two parts of the input by name, dropout, three heads."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.25))
        self.heads = nn.ModuleList([nn.Linear(8, 3), nn.Linear(8, 3), nn.Linear(8, 2)])

    def forward(self, left: Tensor, right: Tensor) -> list[Tensor]:
        shared = self.encoder(torch.cat([left, right], dim=1))
        return [head(shared) for head in self.heads]


def part(n: int, seed: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Six numbers for an example, and complete labels that depend on them."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 6)).astype(np.float32)
    return x, [x[:, :3].argmax(axis=1), (x[:, 1:4] > 0).astype(np.float32), x[:, 4:] + 1]


def holes(targets: list[np.ndarray], seed: int) -> list[np.ndarray]:
    """The same with missing labels of every kind."""
    rng = np.random.default_rng(seed)
    kind, marks, place = (each.astype(np.float32) for each in targets)
    kind[rng.random(kind.shape) < 0.3] = NAN
    marks[rng.random(marks.shape) < 0.4] = NAN  # entry by entry
    place[rng.random(place.shape) < 0.4] = NAN
    kind[0] = 1
    return [kind, marks, place]


SIZES = (5, 9, 14, 20, 33)


def in_parts(x: np.ndarray) -> dict[str, np.ndarray]:
    return {"left": x[:, :2], "right": x[:, 2:]}


def gappy(complete: bool = False) -> Problem:
    """Five clients of 5 to 33 examples, inputs by name, dropout; whole tasks, labels and entries are missing."""
    clients = []
    for k, n in enumerate(SIZES):
        x, targets = part(n, seed=k)
        given = targets if complete else holes(targets, seed=k)
        lacks = {} if complete else {0: [1], 1: [1, 2], 2: [1], 3: [0, 2]}
        clients.append((in_parts(x), [None if i in lacks.get(k, []) else each for i, each in enumerate(given)]))
    x, targets = part(60, seed=99)
    test = (in_parts(x), targets if complete else holes(targets, seed=99))
    return Problem.from_clients(Net, TASKS, clients, test, name="gappy")
