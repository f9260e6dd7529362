"""Arrays in npz files: written atomically, read without pickle, with headers checked before memory is allocated."""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedhv.data.files import BLOCK, opened, write_atomically
from fedhv.support.errors import InputError

LARGEST = 8 << 30
"""The largest accepted array in bytes; CelebA's 162,770 training images have 500 million bytes."""


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an npz file atomically. Not compressed: photographs hardly shrink, and reading is faster."""

    def write(file: IO[bytes]) -> None:
        np.savez(file, allow_pickle=False, **arrays)

    write_atomically(path, write)


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The named arrays of an npz file. Object arrays are rejected, because they are pickled."""
    expected = f"an npz file with the arrays {', '.join(names)}"
    try:
        with opened(path) as file, zipfile.ZipFile(file) as members:
            there = set(members.namelist())
            absent = [name for name in names if f"{name}.npy" not in there]
            if absent:
                raise InputError(f"{path}: expected {expected}, found none called {', '.join(absent)}.")
            return {name: _read_member(members, f"{name}.npy") for name in names}
    except InputError:
        raise
    except _DAMAGE as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise InputError(f"{path}: expected {expected}, found a damaged file ({reason}); make it again.") from None


class _Refused(Exception):
    """An array that does not match its header."""


_DAMAGE = (
    _Refused,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,  # names that are not text, negative offsets
    MemoryError,
    NotImplementedError,  # a packing this Python does not know
    RuntimeError,  # an encrypted member
)


def _read_member(members: zipfile.ZipFile, name: str) -> np.ndarray:
    information = members.getinfo(name)
    with members.open(information) as file:
        try:
            version: Any = np.lib.format.read_magic(file)
            read_header = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }.get(version)
            if read_header is None:
                raise _Refused(f"{name} has the unknown version {version}")
            shape, fortran, dtype = read_header(file)
        except (OSError, _Refused):
            raise
        except Exception as error:  # NumPy reads a header as Python's source, and damage can be any mistake in it
            raise _Refused(f"{name}: {error}") from None
        if dtype.hasobject or fortran:
            raise _Refused(f"{name} holds {'objects' if dtype.hasobject else 'a transposed array'}")
        # The header must agree with the archive's length before memory is allocated.
        length = math.prod(shape) * dtype.itemsize
        if length != information.file_size - file.tell():
            raise _Refused(f"{name} should have {length} bytes and has {information.file_size - file.tell()}")
        if length > LARGEST:
            raise _Refused(f"{name} has {length} bytes, more than {LARGEST}")
        data = np.empty(length, np.uint8)
        view, filled = data.data, 0
        while block := file.read(16 * BLOCK):
            if filled + len(block) > length:
                raise _Refused(f"{name} has more than its {length} bytes")
            view[filled : filled + len(block)] = block
            filled += len(block)
        if filled < length:
            raise _Refused(f"{name} is cut after {filled} of {length} bytes")
    return data.view(dtype).reshape(shape)
