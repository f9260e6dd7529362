"""Benchmarks of composite images: built once and cached in the data directory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fedhv.benchmarks.augment import Normalise
from fedhv.data.arrays import read_arrays, write_arrays
from fedhv.data.files import present
from fedhv.data.genuine import refuse_altered
from fedhv.problem.problem import Augmentation, Benchmark, Examples
from fedhv.problem.tasks import classification
from fedhv.support.errors import InputError

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pairs:
    """Composite images with the labels of both of their parts.

    Attributes:
        images: (n, channels, rows, columns) bytes.
        first: (n,) labels of the first task, bytes.
        second: (n,) labels of the second task, bytes.
    """

    images: np.ndarray
    first: np.ndarray
    second: np.ndarray


def two_tasks(
    name: str,
    tasks: tuple[str, str],
    model: Callable[[], nn.Module],
    splits: tuple[Pairs, Pairs],
    prepare: Normalise,
    augment: Augmentation,
) -> Benchmark:
    """A benchmark of two ten-class tasks from its training and test composites."""
    train, test = (
        Examples(
            torch.from_numpy(pairs.images),
            (torch.from_numpy(pairs.first).long(), torch.from_numpy(pairs.second).long()),
        )
        for pairs in splits
    )
    return Benchmark(
        name=name,
        model=model,
        tasks=tuple(classification(task, 10) for task in tasks),
        train=train,
        test=test,
        prepare=prepare,
        augment=augment,
        strata=dict(zip(tasks, (splits[0].first, splits[0].second), strict=True)),
    )


def cached(
    data: Path, name: str, sources: Sequence[Path], build: Callable[[], tuple[Pairs, Pairs]]
) -> tuple[Pairs, Pairs]:
    """The composites of `build`, from the folder `fedhv-cache` of the data directory if they are there.

    Composites are made again if a source file has changed or the cached file is damaged, and every time if the folder
    cannot be written. Source files with the length of the official files must be the official files.

    Args:
        data: The data directory.
        name: The file's name, with the version of the construction.
        sources: The files that the composites are made of.
        build: Makes the training and the test composites.
    """
    path = data / "fedhv-cache" / f"{name}.npz"
    fingerprint = np.array([_fingerprint(data, source) for source in sources])
    try:
        if present(path):
            return _read(path, fingerprint)
    except InputError as error:
        _LOG.info("%s It is made again.", error)
    refuse_altered(data, sources)
    splits = build()
    arrays = {f"{split}_{part}": getattr(pairs, part) for split, pairs in _named(splits) for part in _PARTS}
    try:
        write_arrays(path, arrays | {"sources": fingerprint})
    except InputError as error:
        _LOG.info("The composites are not cached. %s", error)
    return splits


_SPLITS = ("train", "test")
_PARTS = ("images", "first", "second")


def _named(splits: tuple[Pairs, Pairs]) -> list[tuple[str, Pairs]]:
    return list(zip(_SPLITS, splits, strict=True))


def _fingerprint(data: Path, source: Path) -> str:
    """A text that changes when a source file changes; the file is not read."""
    state = source.stat()
    return f"{source.relative_to(data)} {state.st_size} {state.st_mtime_ns}"


def _read(path: Path, fingerprint: np.ndarray) -> tuple[Pairs, Pairs]:
    arrays = read_arrays(path, [*(f"{split}_{part}" for split in _SPLITS for part in _PARTS), "sources"])
    if arrays["sources"].tolist() != fingerprint.tolist():
        raise InputError(f"{path}: expected composites of the current source files, found those of other files.")
    train, test = (Pairs(*(arrays[f"{split}_{part}"] for part in _PARTS)) for split in _SPLITS)
    for pairs in (train, test):
        n = len(pairs.images)
        labels = pairs.first.shape == pairs.second.shape == (n,)
        types = {pairs.images.dtype, pairs.first.dtype, pairs.second.dtype} == {np.dtype(np.uint8)}
        if not (labels and types and pairs.images.ndim == 4 and n > 0):
            raise InputError(f"{path}: expected composites with two labels each, found other arrays.")
    return train, test
