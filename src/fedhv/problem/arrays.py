"""Inputs and targets from user data: arrays, tensors, lists, pandas columns and frames, tuples and dicts."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedhv.problem.frames import frame_numbers, is_frame, is_series, series_numbers
from fedhv.problem.mapped import memory_map
from fedhv.problem.objects import object_numbers, ragged
from fedhv.problem.stored import Rows, Stored, as_float32
from fedhv.problem.trees import Inputs
from fedhv.support.errors import InputError

UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
"""Types that torch can hold but hardly compute with."""
LARGE = 2**26
"""The size in bytes above which an array is not converted or joined. Smaller arrays are, for faster reading."""


def as_inputs(values: Any, what: str = "inputs", large: int = LARGE) -> Inputs:
    """Inputs of one or several parts. Arrays on disk, and those of more than `large` bytes, are not copied."""
    if isinstance(values, Mapping):
        if not values:
            raise InputError(f"The {what} should have at least one part. Found an empty dict.")
        return {str(name): as_inputs(each, f"{what} '{name}'", large) for name, each in values.items()}
    if isinstance(values, tuple) and values and all(getattr(each, "ndim", 0) > 0 for each in values):
        return tuple(as_inputs(each, f"{what} {i}", large) for i, each in enumerate(values))
    if isinstance(values, Stored):
        return values
    values = _plain(values, what)
    if isinstance(values, np.ndarray) and values.ndim and values.dtype.kind in "fiub":
        converted = values.dtype.kind == "f" and values.dtype != np.float32
        if memory_map(values) is not None or (converted and values.nbytes > large):
            return Rows(values)
    return _many(values, what)


def as_targets(values: Any, n: int, what: str = "targets") -> Tensor:
    """One task's targets. `None` means that no example has a target; NaN means that this example has none."""
    if values is None:
        return torch.full((n,), torch.nan)
    return _many(_plain(values, what), what)


def _plain(values: Any, what: str) -> Any:
    """Tensors and numeric arrays unchanged; everything else as an array with NaN for missing values."""
    if isinstance(values, Tensor):
        return values
    if is_series(values):
        return series_numbers(values, f"The {what}")
    if is_frame(values):
        return frame_numbers(values)
    if isinstance(values, np.ma.MaskedArray):
        return _unmasked(values)
    if isinstance(values, Sequence) and not isinstance(values, str) and len(values):
        values = _stacked(values, what)
    if isinstance(values, np.ndarray) and values.dtype == object:
        return object_numbers(values, f"The {what}")
    if isinstance(values, np.ndarray) and values.dtype.kind == "f" and values.dtype.itemsize > 8:
        return values.astype(np.float64)  # torch has no longer floats
    return values


def _unmasked(values: np.ma.MaskedArray[Any, Any]) -> np.ndarray:
    """A masked array as a plain one, its masked entries as NaN."""
    if values.dtype.kind not in "fiub" or not np.ma.is_masked(values):
        return np.asarray(values)
    return np.where(np.ma.getmaskarray(values), np.nan, np.asarray(values, np.float64))


def _stacked(values: Sequence[Any], what: str) -> Any:
    """A list as an array: of numbers, of rows, of single examples' arrays or tensors."""
    if all(isinstance(each, Tensor) for each in values):
        if len({each.shape for each in values}) > 1:
            raise ragged(f"The {what}", values)
        return torch.stack(list(values))
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:  # rows of different lengths
        raise ragged(f"The {what}", values) from error


def _many(values: Any, what: str) -> Tensor:
    try:
        if isinstance(values, np.ndarray):
            values = values.astype(values.dtype.newbyteorder("="), copy=False)
            if any(stride < 0 for stride in values.strides):  # torch has no such views: x[::-1]
                values = values.copy()
        with warnings.catch_warnings():
            # Torch warns about read-only arrays of pandas and memory maps; they are never written.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable", category=UserWarning)
            tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:  # strings, objects, generators
        found = getattr(values, "dtype", type(values).__name__)
        raise InputError(f"The {what} should be an array of numbers. Found {found}; encode or convert them.") from error
    if tensor.is_complex() or tensor.layout is not torch.strided:
        found = f"{tensor.dtype}" if tensor.is_complex() else f"a sparse tensor ({tensor.layout})"
        raise InputError(f"The {what} should be a dense array of real numbers. Found {found}; convert it.")
    if tensor.dtype in UNSIGNED:
        tensor = tensor.long()
    if tensor.ndim == 0:
        raise InputError(f"The {what} should be an array, one entry for every example. Found the number {tensor}.")
    return as_float32(tensor.detach() if tensor.requires_grad else tensor)
