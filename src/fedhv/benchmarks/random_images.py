"""Random images in the shape of a benchmark, to measure the cost of a round without its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import nn

from fedhv.benchmarks.augment import Normalise, Rotate
from fedhv.benchmarks.models import CIFARNet, LeNet, ResNet18
from fedhv.problem.problem import Augmentation, Clients, Examples, Problem
from fedhv.problem.random import Purpose, stream
from fedhv.problem.tasks import Task, classification, multilabel
from fedhv.support.errors import unknown


class _Sizes(Protocol):
    """The clients of a setting and their numbers of examples."""

    def sizes(self, benchmark: str) -> np.ndarray: ...


class _Setting(Protocol):
    """The parts of a setting that a random problem needs; `fedhv.runs.config.Setting` has them."""

    @property
    def name(self) -> str: ...

    @property
    def benchmark(self) -> str: ...

    @property
    def federation(self) -> _Sizes: ...


@dataclass(frozen=True)
class BenchmarkShape:
    """The shape of a benchmark: its model, the size of its images and test set, its tasks."""

    model: Callable[[], nn.Module]
    image: tuple[int, int, int]
    test: int
    tasks: tuple[Task, ...]
    prepare: Normalise
    augment: Augmentation | None
    targets: Callable[[np.random.Generator, int], np.ndarray] = lambda rng, n: rng.integers(0, 10, n)


_TWO = (classification("first", 10), classification("second", 10))
_GREY, _COLOUR = Normalise((0.13,), (0.31,)), Normalise((0.49, 0.48, 0.45), (0.2, 0.2, 0.2))

SHAPES: Mapping[str, BenchmarkShape] = {
    "digits": BenchmarkShape(LeNet, (1, 28, 28), 1_440, _TWO, _GREY, None),
    "multimnist": BenchmarkShape(LeNet, (1, 28, 28), 10_000, _TWO, _GREY, Rotate(25)),
    "mnist-fmnist": BenchmarkShape(LeNet, (1, 28, 28), 10_000, _TWO, _GREY, Rotate(25)),
    "cifar10-mnist": BenchmarkShape(
        CIFARNet, (3, 32, 32), 10_000, _TWO, _COLOUR, Rotate(30, whole=True, mirror=0.4, mode="nearest")
    ),
    "celeba5": BenchmarkShape(
        ResNet18,
        (3, 32, 32),
        19_962,
        tuple(multilabel(f"T{i + 1}", 8) for i in range(5)),
        _COLOUR,
        None,
        lambda rng, n: rng.integers(0, 2, (n, 8), dtype=np.uint8),
    ),
}
"""The shapes of the shipped benchmarks."""


def random_problem(setting: _Setting, test: int | None = None) -> Problem:
    """A problem of the setting's shape whose images and labels are noise.

    Args:
        setting: The setting, with its benchmark, its clients and their numbers of examples.
        test: The number of test examples, instead of the benchmark's.
    """
    if setting.benchmark not in SHAPES:
        raise unknown("benchmark with a known shape", setting.benchmark, SHAPES)
    shape, federation = SHAPES[setting.benchmark], setting.federation
    sizes = federation.sizes(setting.benchmark)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    rng = stream(0, Purpose.BENCHMARK)

    def examples(count: int) -> Examples:
        pixels = rng.integers(0, 256, (count, *shape.image), dtype=np.uint8)
        return Examples.of(pixels, [shape.targets(rng, count) for _ in shape.tasks])

    n = int(offsets[-1])
    return Problem(
        name=setting.name,
        model=shape.model,
        tasks=shape.tasks,
        train=examples(n),
        test=examples(shape.test if test is None else test),
        prepare=shape.prepare,
        augment=shape.augment,
        clients=Clients(np.arange(n, dtype=np.int64), offsets),
    )
