"""Five questions about one handwritten digit: a benchmark of one's own, for a picture of many tasks.

cd docs/images && fedhv compare five-questions.toml --out ../../runs/five-questions
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from fedhv import Benchmark, Examples, classification

QUESTIONS = {
    "which": None,
    "odd": {1, 3, 5, 7, 9},
    "above four": {5, 6, 7, 8, 9},
    "prime": {2, 3, 5, 7},
    "has a loop": {0, 6, 8, 9},
}


class Answers(nn.Module):
    """Two shared layers and a head for every question."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.heads = nn.ModuleList(nn.Linear(16, 10 if yes is None else 2) for yes in QUESTIONS.values())

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """One output for every question."""
        seen = self.trunk(images)
        return tuple(head(seen) for head in self.heads)


def load() -> Benchmark:
    """The benchmark."""
    digits = load_digits()
    images = torch.from_numpy(digits.images).float()[:, None] / 16
    labels = digits.target.astype(np.int64)
    answers = [labels if yes is None else np.isin(labels, list(yes)).astype(np.int64) for yes in QUESTIONS.values()]
    train, test = slice(0, 1437), slice(1437, None)
    return Benchmark(
        name="five questions",
        model=Answers,
        tasks=tuple(classification(name, 10 if yes is None else 2) for name, yes in QUESTIONS.items()),
        train=Examples.of(images[train], [answer[train] for answer in answers]),
        test=Examples.of(images[test], [answer[test] for answer in answers]),
        strata={"digit": labels[train]},
    )
