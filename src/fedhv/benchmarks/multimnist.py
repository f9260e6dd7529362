"""MultiMNIST: two MNIST digits in one image; the tasks are the left and the right digit."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedhv.benchmarks.augment import Normalise, Rotate
from fedhv.benchmarks.compose import compose
from fedhv.benchmarks.composites import Pairs, cached, two_tasks
from fedhv.benchmarks.models import LeNet
from fedhv.data.catalogue import MNIST
from fedhv.data.mnist import idx_files, load_mnist
from fedhv.problem.problem import Benchmark
from fedhv.problem.random import Purpose, stream

GREY = Normalise((0.1307,), (0.3081,))
"""Mean and standard deviation of MNIST's pixels."""


def load(data: Path) -> Benchmark:
    """MultiMNIST with the tasks "left" and "right": one composite for every MNIST image."""

    def build() -> tuple[Pairs, Pairs]:
        train_images, train_labels, test_images, test_labels = load_mnist(data)
        return pairs(train_images, train_labels, part=0), pairs(test_images, test_labels, part=1)

    splits = cached(data, "multimnist-v1", idx_files(data, MNIST), build)
    return two_tasks("MultiMNIST", ("left", "right"), LeNet, splits, GREY, Rotate(25))


def pairs(images: np.ndarray, labels: np.ndarray, part: int) -> Pairs:
    """Every digit on the left, with one drawn uniformly from the same split on the right."""
    right = stream(0, Purpose.BENCHMARK, part=part).integers(len(images), size=len(images))
    composites = compose(images, images[right], canvas=36, offsets=(0, 6), size=28)
    return Pairs(composites[:, None], labels, labels[right])
