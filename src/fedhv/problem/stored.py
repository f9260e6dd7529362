"""Inputs that are not a single tensor: read by index and converted minibatch by minibatch.

`Rows` reads an array on disk or in memory. `Joined` reads the arrays of several clients as one. `Collated` makes a
minibatch from single examples by a function. All of them return tensors for `stored[index]`, as a tensor does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedhv.problem.mapped import RowFile, memory_map
from fedhv.problem.trees import Inputs, leaves, tree_map
from fedhv.support.errors import InputError

CHECKED = 2**22
"""The number of values that are checked at once. A copy of a whole array would double its memory."""


class Stored(ABC):
    """n inputs, read by index."""

    device: torch.device = torch.device("cpu")
    """The device of the tensors that are read."""

    @property
    @abstractmethod
    def resident(self) -> bool:
        """Whether all inputs are in memory, so that an engine may store them on its device."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, positions: np.ndarray) -> Inputs:
        """The inputs at these positions, as tensors in main memory."""

    def __getitem__(self, index: Any) -> Inputs:
        return tree_map(lambda leaf: leaf.to(self.device), self.read(as_positions(index, len(self))))

    @abstractmethod
    def to(self, device: torch.device | str) -> Any:
        """The same inputs for a device: moved as a whole if they are resident, otherwise read on access."""

    def check(self) -> None:
        """Raise `InputError` if a number is not finite. Inputs that are too large are checked when they are read."""
        return


class Rows(Stored):
    """The rows of an array or a memory map. The array is not copied; real numbers become float32 when read."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self._file = RowFile.open(array)

    @property
    def resident(self) -> bool:
        """Whether the array is in memory."""
        return memory_map(self.array) is None

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's."""
        return self.array.shape

    @property
    def nbytes(self) -> int:
        """The array's."""
        return self.array.nbytes

    @property
    def dtype(self) -> torch.dtype:
        """The type of the tensors that are read."""
        return _tensor(self.array[:0]).dtype

    def __len__(self) -> int:
        return len(self.array)

    def read(self, positions: np.ndarray) -> Tensor:
        """The rows at these positions."""
        tensor = _tensor(self.array[positions] if self._file is None else self._file.read(positions))
        if not self.resident and not finite(tensor):
            rows = torch.isfinite(tensor.reshape(len(tensor), -1)).all(dim=1)
            where = int(positions[int((~rows).nonzero()[0])])
            raise InputError(f"Expected finite inputs. Found NaN or infinity in row {where}; clean the data first.")
        return tensor

    def to(self, device: torch.device | str) -> Any:
        """On a GPU the whole array, or a reader whose tensors go there."""
        if torch.device(device).type == "cpu":
            return self
        if self.resident:
            return joined_on(device, [self], self.shape, self.dtype)
        moved = Rows(self.array)
        moved.device = torch.device(device)
        return moved

    def check(self) -> None:
        """Check an array in memory, in parts."""
        step = max(1, CHECKED // max(1, self.array[:1].size))
        for start in range(0, len(self) if self.resident else 0, step):
            if not finite(_tensor(self.array[start : start + step])):
                raise InputError("expected finite inputs. Found NaN or infinity; clean the data first.")


class Joined(Stored):
    """The inputs of several clients as one, without concatenation."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = list(parts)
        self.offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
        self._dtype = self.parts[0].dtype
        for part in self.parts:
            self._dtype = torch.promote_types(self._dtype, part.dtype)

    @property
    def resident(self) -> bool:
        """Whether every part is in memory."""
        return all(isinstance(part, Tensor) or part.resident for part in self.parts)

    @property
    def nbytes(self) -> int:
        """The sum over all parts."""
        return sum(part.nbytes for part in self.parts)

    @property
    def shape(self) -> tuple[int, ...]:
        """As of the concatenation."""
        return (len(self), *self.parts[0].shape[1:])

    @property
    def dtype(self) -> torch.dtype:
        """As of the concatenation."""
        dtype: torch.dtype = self._dtype
        return dtype

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def read(self, positions: np.ndarray) -> Tensor:
        """The inputs at these positions; one read per client."""
        owner = np.searchsorted(self.offsets, positions, side="right") - 1
        if len(owner) and (owner == owner[0]).all():
            return self._part(int(owner[0]), positions)
        gathered = torch.empty((len(positions), *self.shape[1:]), dtype=self.dtype)
        for part in np.unique(owner):
            mine = owner == part
            gathered[torch.from_numpy(mine)] = self._part(int(part), positions[mine])
        return gathered

    def _part(self, part: int, positions: np.ndarray) -> Tensor:
        held, local = self.parts[part], positions - self.offsets[part]
        read: Tensor = held[torch.from_numpy(local)] if isinstance(held, Tensor) else held.read(local)
        return read.to(self.dtype)

    def to(self, device: torch.device | str) -> Any:
        """On a GPU one tensor, or a reader whose tensors go there."""
        if torch.device(device).type == "cpu":
            return self
        if self.resident:
            return joined_on(device, self.parts, self.shape, self.dtype)
        moved = Joined(self.parts)
        moved.device = torch.device(device)
        return moved

    def check(self) -> None:
        """Check every part."""
        for part in self.parts:
            check_finite(part)


class Collated(Stored):
    """Single examples, from which a function makes the inputs of a minibatch.

    Args:
        items: One entry for every example; `items[i]` may read it from disk.
        collate: From a list of entries to inputs with a first axis of that length.
    """

    def __init__(self, items: Sequence[Any], collate: Callable[[list[Any]], Inputs]) -> None:
        self.items = items
        self.collate = collate

    @property
    def resident(self) -> bool:
        """False: minibatches may have different shapes."""
        return False

    def __len__(self) -> int:
        return len(self.items)

    def read(self, positions: np.ndarray) -> Inputs:
        """A minibatch."""
        made = self.collate([self.items[int(i)] for i in positions])
        parts = leaves(made)
        fit = all(isinstance(part, Tensor) and part.ndim and len(part) == len(positions) for part in parts)
        if not parts or not fit:
            raise InputError(
                f"`collate` should make a tensor from {len(positions)} examples, or a tuple or dict of tensors, with a "
                f"first axis of {len(positions)}. Found {_found(made)}."
            )
        made = tree_map(as_float32, made)
        for leaf in leaves(made):
            if not finite(leaf):
                raise InputError("Expected finite inputs. Found NaN or infinity after `collate`; clean the data first.")
        return made

    def to(self, device: torch.device | str) -> Collated:
        """A reader whose tensors go to the device."""
        moved = Collated(self.items, self.collate)
        moved.device = torch.device(device)
        return moved


class Concatenation(Sequence[Any]):
    """The entries of several clients as one sequence."""

    def __init__(self, parts: Sequence[Sequence[Any]]) -> None:
        self.parts = parts
        self.offsets = [0, *np.cumsum([len(part) for part in parts]).tolist()]

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def __getitem__(self, i: Any) -> Any:
        part = bisect_right(self.offsets, i) - 1
        return self.parts[part][i - self.offsets[part]]


def joined_on(device: torch.device | str, parts: Sequence[Any], shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """All parts as one tensor on a device, copied piece by piece to save main memory."""
    whole = torch.empty(tuple(shape), dtype=dtype, device=device)
    start = 0
    for part in parts:
        if isinstance(part, Tensor):
            whole[start : start + len(part)] = part.to(device)
        else:
            step = max(1, CHECKED // max(1, part.array[:1].size))
            for first in range(0, len(part), step):
                piece = _tensor(part.array[first : first + step])
                whole[start + first : start + first + len(piece)] = piece.to(device)
        start += len(part)
    return whole


def as_positions(index: Any, n: int) -> np.ndarray:
    """Any index of n entries as positions from 0; negative ones count from the end."""
    if isinstance(index, slice):
        return np.arange(*index.indices(n), dtype=np.int64)
    array = index.cpu().numpy() if isinstance(index, Tensor) else np.asarray(index)
    if array.dtype == bool:
        return np.flatnonzero(array)
    array = array.astype(np.int64, copy=False).reshape(-1)
    return np.where(array < 0, array + n, array) if len(array) and array.min() < 0 else array


def as_float32(tensor: Tensor) -> Tensor:
    """Real numbers as float32; integers unchanged."""
    return tensor.float() if tensor.is_floating_point() else tensor


def finite(tensor: Tensor) -> bool:
    """Whether all numbers are finite, checked in parts."""
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return True
    step = max(1, CHECKED // max(1, tensor[:1].numel()))
    return all(bool(torch.isfinite(tensor[i : i + step]).all()) for i in range(0, len(tensor), step))


def check_finite(leaf: Any) -> None:
    """Raise `InputError` if a part of inputs is not finite."""
    if isinstance(leaf, Stored):
        leaf.check()
    elif not finite(leaf):
        raise InputError("expected finite inputs. Found NaN or infinity; clean the data first.")


def _tensor(array: np.ndarray) -> Tensor:
    """A piece of an array as a tensor, whatever its precision and byte order."""
    native = np.require(array, array.dtype.newbyteorder("="), ["C", "W"])  # torch needs writable arrays
    return as_float32(torch.from_numpy(native))


def _found(made: Any) -> str:
    shapes = [tuple(leaf.shape) if isinstance(leaf, Tensor) else type(leaf).__name__ for leaf in leaves(made)]
    return ", ".join(map(str, shapes)) or "nothing"
