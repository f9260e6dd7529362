"""Rows of a memory map, read from its file.

Reading a row through the map adds the row to the process's memory, together with as much of the file as the system
maps at once, which may be 2 MB per row. Reading the row from the file adds only the row.
"""

from __future__ import annotations

import mmap
import os
import weakref
from typing import Any

import numpy as np

from fedhv.support.errors import FedHVError


def memory_map(array: Any) -> np.memmap | None:
    """The memory map behind an array."""
    while isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
        array = array.base
    return array if isinstance(array, np.memmap) else None


class RowFile:
    """The file behind an array whose rows are contiguous in it; `open` returns None if there is none."""

    def __init__(self, array: np.ndarray, file: int, offset: int) -> None:
        self._array = array
        self._file = file
        self._offset = offset
        weakref.finalize(self, os.close, file)

    @classmethod
    def open(cls, array: np.ndarray) -> RowFile | None:
        """None if the map itself has to be read: private changes, another layout, or a removed file."""
        mapped = memory_map(array)
        pages: Any = getattr(mapped, "_mmap", None)
        plain = array.ndim > 0 and array.size > 0 and array[0].flags.c_contiguous and array.strides[0] > 0
        if mapped is None or pages is None or mapped.mode == "c" or not plain or not hasattr(os, "preadv"):
            return None
        first = np.frombuffer(pages, np.uint8).__array_interface__["data"][0]
        begin = mapped.offset - mapped.offset % mmap.ALLOCATIONGRANULARITY
        try:
            file = os.open(str(mapped.filename), os.O_RDONLY)
        except OSError:
            return None
        made = cls(array, file, begin + array.__array_interface__["data"][0] - first)
        ends = np.array([0, len(array) - 1])
        # The name may now refer to another file.
        return made if made.read(ends).tobytes() == array[ends].tobytes() else None

    def read(self, positions: np.ndarray) -> np.ndarray:
        """The rows at these positions, a new array."""
        rows = np.empty((len(positions), *self._array.shape[1:]), self._array.dtype)
        step = self._array.strides[0]
        packed = step == self._array[0].nbytes and len(positions) > 1 and bool((np.diff(positions) == 1).all())
        if packed:
            self._fill(rows, int(positions[0]))
        else:
            for i, position in enumerate(positions.tolist()):
                self._fill(rows[i : i + 1], position)
        return rows

    def _fill(self, rows: np.ndarray, position: int) -> None:
        """Read until the rows are complete."""
        view = rows.reshape(-1).view(np.uint8).data
        start = self._offset + position * self._array.strides[0]
        done = 0
        while done < len(view):
            count = os.preadv(self._file, [view[done:]], start + done)
            if count == 0:
                raise FedHVError(
                    f"The file of the memory map is too short for row {position}: it was changed during the run."
                )
            done += count
