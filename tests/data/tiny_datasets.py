"""Datasets of a few images in the official formats, for tests without any dataset."""

import gzip
import struct
from pathlib import Path

import numpy as np

from fedhv.data.catalogue import CIFAR10, IDX_NAMES
from fedhv.data.celeba import ATTRIBUTES


def idx_bytes(array):
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def idx_contents(train=12, test=6, seed=0):
    rng = np.random.default_rng(seed)
    arrays = []
    for n in (train, test):
        arrays += [rng.integers(256, size=(n, 28, 28)), np.arange(n) % 10]
    return dict(zip(IDX_NAMES, map(idx_bytes, arrays), strict=True))


def write_idx(folder: Path, compressed=True, **options):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in idx_contents(**options).items():
        if compressed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)


def cifar_contents(records=2, seed=1):
    rng = np.random.default_rng(seed)
    contents = {}
    for file in CIFAR10.files:
        labels = rng.integers(10, size=(records, 1))
        pixels = rng.integers(256, size=(records, 3072))
        contents[file.name] = np.concatenate([labels, pixels], axis=1).astype(np.uint8).tobytes()
    return contents


def write_cifar(root: Path, **options):
    folder = root / CIFAR10.folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in cifar_contents(**options).items():
        (folder / name).write_bytes(content)


def write_celeba(root: Path, partitions=(0, 0, 0, 1, 2, 2), seed=2):
    """JPEGs 000001.jpg … with random attributes; returns these as 0 and 1."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    folder = root / "celeba"
    (folder / "img_align_celeba").mkdir(parents=True)
    attributes = rng.integers(2, size=(len(partitions), 40))
    names = [f"{i + 1:06}.jpg" for i in range(len(partitions))]
    for name in names:
        small = Image.fromarray(rng.integers(256, size=(8, 7, 3), dtype=np.uint8))
        small.resize((178, 218), Image.Resampling.BICUBIC).save(folder / "img_align_celeba" / name, quality=90)
    rows = [f"{name} {' '.join(f'{2 * a - 1:2}' for a in row)}" for name, row in zip(names, attributes, strict=True)]
    (folder / "list_attr_celeba.txt").write_text("\n".join([str(len(names)), " ".join(ATTRIBUTES), *rows, ""]))
    lines = [f"{name} {number}" for name, number in zip(names, partitions, strict=True)]
    (folder / "list_eval_partition.txt").write_text("\n".join([*lines, ""]))
    return attributes
