"""Your own benchmark: four tasks on one handwritten digit, with a setting, run like the others.

cd examples/custom_benchmark
fedhv compare questions.toml --seeds 0
fedhv report runs/questions
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from fedhv import Benchmark, Examples, classification

QUESTIONS = {"odd": {1, 3, 5, 7, 9}, "prime": {2, 3, 5, 7}, "loop": {0, 6, 8, 9}}


class Net(nn.Module):
    """A small convolutional trunk and one head per task."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 24), nn.ReLU()
        )
        self.heads = nn.ModuleList([nn.Linear(24, 10), *(nn.Linear(24, 2) for _ in QUESTIONS)])

    def forward(self, images: Tensor) -> list[Tensor]:
        seen = self.trunk(images)
        return [head(seen) for head in self.heads]


def brightness(images: Tensor) -> Tensor:
    """Stored bytes from 0 to 16 as the model's inputs from 0 to 1."""
    return images.float() / 16


def load() -> Benchmark:
    """The function that `questions.toml` names."""
    digits = load_digits()
    images = torch.from_numpy(digits.images).to(torch.uint8)[:, None]
    labels = digits.target.astype(np.int64)
    answers = [labels, *(np.isin(labels, list(yes)).astype(np.int64) for yes in QUESTIONS.values())]
    train, test = slice(0, 1437), slice(1437, None)
    return Benchmark(
        name="questions",
        model=Net,
        tasks=(classification("digit", 10), *(classification(name, 2) for name in QUESTIONS)),
        train=Examples.of(images[train], [answer[train] for answer in answers]),
        test=Examples.of(images[test], [answer[test] for answer in answers]),
        prepare=brightness,
        strata={"digit": labels[train]},  # clients are divided by digit, which fixes all answers
    )
