"""CIFAR-10 from its binary version: records of a label and 3x32x32 bytes. The pickled version is rejected."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedhv.data.catalogue import CIFAR10
from fedhv.data.files import opened, present
from fedhv.data.locate import missing
from fedhv.data.mnist import ImageArrays
from fedhv.support.errors import InputError

RECORD = 1 + 3 * 32 * 32
LARGEST = 1 << 30
"""The largest accepted file in bytes; an official one has 30,730,000 bytes."""


def load_cifar10(root: Path) -> ImageArrays:
    """Images (n, 3, 32, 32) and labels (n,) of CIFAR-10's two splits."""
    *train, test = [read_records(path) for path in cifar_files(root)]
    return (
        np.concatenate([images for images, _ in train]),
        np.concatenate([labels for _, labels in train]),
        *test,
    )


def cifar_files(root: Path) -> list[Path]:
    """The five training files and the test file of the binary version."""
    folder = root / CIFAR10.folder
    paths = [folder / file.name for file in CIFAR10.files]
    absent = [path.name for path in paths if not present(path)]
    if absent:
        remedy = (
            f"Run `fedhv data download {CIFAR10.name}`, or unpack {CIFAR10.archive} "
            f"(the binary version, {CIFAR10.url}{CIFAR10.archive}) in {root}"
        )
        if present(root / "cifar-10-batches-py"):
            remedy = (
                "The folder cifar-10-batches-py beside it is the pickled version, which can run code when "
                f"read and is never loaded. {remedy}"
            )
        raise missing("CIFAR-10 (binary version)", absent, folder, remedy)
    return paths


def read_records(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 3, 32, 32) and labels (n,) of one binary file."""
    with opened(path) as file:
        data = file.read(LARGEST + 1)
    if not data or len(data) % RECORD or len(data) > LARGEST:
        raise InputError(
            f"{path}: expected a whole number of {RECORD}-byte records, found {len(data)} bytes "
            f"({len(data) // RECORD} records and {len(data) % RECORD} bytes); delete it and get it again."
        )
    records = np.frombuffer(data, np.uint8).reshape(-1, RECORD)
    labels = records[:, 0].copy()
    if labels.max() > 9:
        raise InputError(
            f"{path}: expected labels from 0 to 9, found {labels.max()} in record {int(labels.argmax())}; "
            "delete it and get it again."
        )
    return records[:, 1:].reshape(-1, 3, 32, 32), labels
