"""The idx format of MNIST and Fashion-MNIST: a magic number, the dimensions, then the bytes."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np

from fedhv.data.files import BLOCK, uncompressed
from fedhv.support.errors import InputError

LARGEST = 1 << 30
"""The largest number of bytes of an idx file, so that a damaged header cannot fill the memory."""


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """Unsigned bytes of an idx file, plain or gzip, whose header and length agree exactly.

    Args:
        path: The file.
        dimensions: The expected number of dimensions: 3 for images, 1 for labels.
    """
    with uncompressed(path) as file:
        header = file.read(4 + 4 * dimensions)
        if len(header) < 4 + 4 * dimensions:
            raise _damaged(path, f"a header of {4 + 4 * dimensions} bytes", f"{len(header)} bytes in all")
        if header[:2] != b"\0\0" or header[2] != 0x08 or header[3] != dimensions:
            raise _damaged(
                path,
                f"an idx file of unsigned bytes in {dimensions} dimensions (0000080{dimensions})",
                f"the magic number {header[:4].hex()}",
            )
        shape: tuple[int, ...] = struct.unpack(f">{dimensions}I", header[4:])
        length = math.prod(shape)
        if not 0 < length <= LARGEST:
            raise _damaged(path, f"between 1 and {LARGEST} bytes of data", f"dimensions {shape}")
        data = np.empty(length, np.uint8)
        view, filled = data.data, 0
        while filled < length and (block := file.read(min(BLOCK, length - filled))):
            view[filled : filled + len(block)] = block
            filled += len(block)
        if filled < length:
            raise _damaged(path, f"{length} bytes of data for dimensions {shape}", f"a file cut after {filled}")
        # Reading past the end also makes gzip compare its checksum.
        if file.read(1):
            raise _damaged(path, f"{length} bytes of data for dimensions {shape}", "more bytes after them")
    return data.reshape(shape)


def _damaged(path: Path, expected: str, found: str) -> InputError:
    return InputError(f"{path}: expected {expected}, found {found}; delete it and get it again.")
