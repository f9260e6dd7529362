"""The embedded benchmark: two handwritten digits in one image, one clear and one faint. It needs no download.

scikit-learn's bundled 8x8 digits are resized to 28x28 and used with MultiMNIST's composition and model. The left digit
has full contrast, the right one is faint: an easy and a hard task, which shows the effect of task weights.
"""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

import numpy as np
import torch

from fedhv.benchmarks.augment import Normalise
from fedhv.benchmarks.compose import compose
from fedhv.benchmarks.models import LeNet
from fedhv.problem.problem import Benchmark, Examples
from fedhv.problem.random import Purpose, stream
from fedhv.problem.tasks import classification

TRAIN = 1437
"""The bundled digits are ordered by writer, so the writers of the last 360 are not in the training examples."""
COPIES = 4
"""The number of composites with each digit on the left."""
CONTRAST = 0.6
"""The contrast of the right digit relative to the left one."""


def load() -> Benchmark:
    """The benchmark `digits`: tasks "clear" and "faint"."""
    train, test = (Examples.of(pixels.copy(), tuple(each.copy() for each in labels)) for pixels, labels in _parts())
    return Benchmark(
        name="digits",
        model=LeNet,
        tasks=(classification("clear", 10), classification("faint", 10)),
        train=train,
        test=test,
        prepare=Normalise((0.1307,), (0.3081,)),
    )


Part = tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]
"""Pixels, and the labels of both tasks."""


@functools.cache
def _parts() -> tuple[Part, Part]:
    """Training and test examples. They are made once in a process, which may load the benchmark for many runs."""
    table = _bundled()
    small = torch.from_numpy(table[:, :64].reshape(-1, 1, 8, 8)).float() / 16
    images = torch.nn.functional.interpolate(small, size=(28, 28), mode="bilinear")[:, 0].numpy()
    labels = table[:, 64].astype(np.int64)
    return (
        _composites(images[:TRAIN], labels[:TRAIN], COPIES, part=0),
        _composites(images[TRAIN:], labels[TRAIN:], COPIES, part=1),
    )


def _bundled() -> np.ndarray:
    """scikit-learn's digits: for each its 64 pixels (0 to 16) and its label.

    The file is read without scikit-learn, whose import takes a second in every process of a federation.
    """
    package = importlib.util.find_spec("sklearn")
    assert package is not None
    assert package.submodule_search_locations is not None
    path = Path(package.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    if path.exists():
        return np.loadtxt(path, delimiter=",")
    from sklearn.datasets import load_digits

    found = load_digits()
    return np.column_stack([found.data, found.target])


def _composites(images: np.ndarray, labels: np.ndarray, copies: int, part: int) -> Part:
    rng = stream(0, Purpose.BENCHMARK, part=part)
    left = np.tile(np.arange(len(images)), copies)
    right = rng.integers(len(images), size=len(left))
    pair = compose(images[left], CONTRAST * images[right], canvas=36, offsets=(0, 6), size=28)
    pixels = (255 * pair).round().astype(np.uint8)
    return pixels[:, None], (labels[left], labels[right])
