"""MNIST and Fashion-MNIST: ten classes of 28x28 grey images in four idx files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedhv.data.catalogue import FASHION_MNIST, MNIST, Source
from fedhv.data.files import present
from fedhv.data.idx import read_idx
from fedhv.data.locate import missing
from fedhv.support.errors import InputError

ImageArrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Training images, training labels, test images, test labels; unsigned bytes."""


def load_mnist(root: Path) -> ImageArrays:
    """Images (n, 28, 28) and labels (n,) of MNIST's two splits."""
    return _load(root, MNIST)


def load_fashion_mnist(root: Path) -> ImageArrays:
    """Images (n, 28, 28) and labels (n,) of Fashion-MNIST's two splits."""
    return _load(root, FASHION_MNIST)


def idx_files(root: Path, source: Source) -> list[Path]:
    """The four files, each plain or gzip, in torchvision's layout."""
    folder = root / source.folder
    found = [find_idx(folder, file.name) for file in source.files]
    absent = [file.name for file, path in zip(source.files, found, strict=True) if path is None]
    if absent:
        remedy = f"Run `fedhv data download {source.name}`, or put the official files there (plain or .gz)"
        raise missing(source.title, absent, folder, remedy)
    return [path for path in found if path is not None]


def find_idx(folder: Path, name: str) -> Path | None:
    """The plain file if it exists, otherwise the compressed one."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if present(path)), None)


def _load(root: Path, source: Source) -> ImageArrays:
    paths = idx_files(root, source)
    train, test = _split(paths[0], paths[1]), _split(paths[2], paths[3])
    return (*train, *test)


def _split(images_path: Path, labels_path: Path) -> tuple[np.ndarray, np.ndarray]:
    images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
    if images.shape[1:] != (28, 28):
        raise InputError(f"{images_path}: expected 28x28 images, found {images.shape[1]}x{images.shape[2]}.")
    if len(images) != len(labels):
        raise InputError(
            f"{labels_path}: expected {len(images)} labels, one for each image of {images_path.name}, "
            f"found {len(labels)}; get both files again."
        )
    if labels.max() > 9:
        raise InputError(f"{labels_path}: expected labels from 0 to 9, found {labels.max()}; get it again.")
    return images, labels
