"""MNIST–FMNIST: a digit and a piece of clothing in one image; the tasks are the two classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedhv.benchmarks.augment import Rotate
from fedhv.benchmarks.compose import compose
from fedhv.benchmarks.composites import Pairs, cached, two_tasks
from fedhv.benchmarks.models import LeNet
from fedhv.benchmarks.multimnist import GREY
from fedhv.data.catalogue import FASHION_MNIST, MNIST
from fedhv.data.mnist import idx_files, load_fashion_mnist, load_mnist
from fedhv.problem.problem import Benchmark
from fedhv.problem.random import Purpose, stream
from fedhv.support.errors import InputError


def load(data: Path) -> Benchmark:
    """MNIST–FMNIST with the tasks "digit" and "clothing": one composite for every MNIST image."""

    def build() -> tuple[Pairs, Pairs]:
        digits, clothing = load_mnist(data), load_fashion_mnist(data)
        return pairs(*digits[:2], *clothing[:2], part=0), pairs(*digits[2:], *clothing[2:], part=1)

    sources = [*idx_files(data, MNIST), *idx_files(data, FASHION_MNIST)]
    splits = cached(data, "mnist-fmnist-v1", sources, build)
    return two_tasks("MNIST-FMNIST", ("digit", "clothing"), LeNet, splits, GREY, Rotate(25))


def pairs(
    digits: np.ndarray, digit_labels: np.ndarray, clothing: np.ndarray, clothing_labels: np.ndarray, part: int
) -> Pairs:
    """Every digit on the left, with clothing on the right; no piece of clothing is used twice."""
    if len(clothing) < len(digits):
        raise InputError(
            f"MNIST–FMNIST needs a piece of clothing for each of {len(digits)} digits. Found {len(clothing)}; "
            "check the files with `fedhv data verify`."
        )
    right = stream(0, Purpose.BENCHMARK, part=part).permutation(len(clothing))[: len(digits)]
    composites = compose(digits, clothing[right], canvas=42, offsets=(0, 14), size=28)
    return Pairs(composites[:, None], digit_labels, clothing_labels[right])
