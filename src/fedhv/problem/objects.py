"""Numeric arrays from arrays of Python objects: numbers with None and pandas.NA, or one array per entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedhv.support.errors import InputError


def object_numbers(values: np.ndarray, subject: str) -> np.ndarray:
    """Numbers from an array of Python objects: `None` and pandas' NA are NaN, arrays of one shape are stacked."""
    entries = [None if is_missing(each) else each for each in values.ravel()]
    there = [each for each in entries if each is not None]
    shapes = {np.shape(each) for each in there}
    if len(shapes) > 1:
        raise ragged(subject, there)
    try:
        arrays = np.asarray([np.asarray(each) for each in there])
        if arrays.dtype.kind not in "fiub":
            arrays = arrays.astype(np.float64) if all(_is_number(each) for each in there) else arrays
        if arrays.dtype.kind not in "fiub":
            raise TypeError
    except (TypeError, ValueError):
        odd = next((each for each in there if not _is_number(each)), "nothing")
        raise InputError(f"{subject} should be an array of numbers. Found {odd!r}; encode or convert them.") from None
    shape = next(iter(shapes), ())
    if len(there) == len(entries):
        return arrays.reshape(*values.shape, *shape)
    whole = np.full((len(entries), *shape), np.nan)
    whole[[each is not None for each in entries]] = arrays
    return whole.reshape(*values.shape, *shape)


def is_missing(value: Any) -> bool:
    """Whether a single value is None, NaN or pandas.NA."""
    if value is None or value is np.ma.masked or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _is_number(value: Any) -> bool:
    return np.asarray(value).dtype.kind in "fiub" or hasattr(value, "__float__")


def ragged(subject: str, values: Sequence[Any]) -> InputError:
    """The error for entries of different shapes."""
    shapes = list(dict.fromkeys(np.shape(each) for each in values))[:2]
    remedy = "convert them" if "targets" in subject else "give `collate=fedhv.padded`, or pad them"
    return InputError(
        f"{subject} should be an array of numbers. Found rows of different shapes, "
        f"{' and '.join(map(str, shapes)) or 'mixed'}; {remedy}."
    )
