"""The model and the tasks, which nodes and server share, and the data. Replace this file with yours."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

import fedhv

SENSORS = 12
TASKS = (fedhv.classification("fails", 2), fedhv.regression("hours", tolerance=0.5))


class Net(nn.Module):
    """One trunk, and one head per task."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(SENSORS, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(32, 2), nn.Linear(32, 1)])

    def forward(self, x: Tensor) -> list[Tensor]:
        shared = self.trunk(x)
        return [head(shared) for head in self.heads]


def examples(site: int, count: int, part: int = 0) -> tuple[np.ndarray, list[np.ndarray]]:
    """The sensor readings of one site and the outcomes of its machines.

    They are random here, with a different drift per site. Yours come from the node's disk and are not sent.
    """
    rng = np.random.default_rng([part, site])
    x = rng.standard_normal((count, SENSORS), dtype=np.float32) + 0.3 * np.float32(site - 1)
    wear = x[:, :4].sum(axis=1) + 0.5 * np.sin(3 * x[:, 4])
    fails = (wear + 0.5 * rng.standard_normal(count) > 0).astype(np.int64)
    hours = (1.5 - 0.5 * wear + 0.1 * rng.standard_normal(count)).astype(np.float32)
    return x, [fails, hours]
