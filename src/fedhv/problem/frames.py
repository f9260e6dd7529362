"""pandas columns as numeric arrays with NaN for missing values. pandas is imported only if the user has imported it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedhv.problem.objects import object_numbers
from fedhv.support.errors import InputError


def is_series(values: Any) -> bool:
    """Whether this is a pandas Series."""
    return _of_pandas(values) and getattr(values, "ndim", 0) == 1 and hasattr(values, "to_numpy")


def is_frame(values: Any) -> bool:
    """Whether this is a pandas DataFrame."""
    return _of_pandas(values) and getattr(values, "ndim", 0) == 2 and hasattr(values, "columns")


def _of_pandas(values: Any) -> bool:
    return type(values).__module__.partition(".")[0] == "pandas"


def frame_numbers(frame: Any, columns: Sequence[Any] | None = None) -> np.ndarray:
    """Columns as an n × p matrix of float32; the frame's index is ignored."""
    names = list(frame.columns if columns is None else columns)
    check_some(names)
    whole = np.empty((len(frame), len(names)), np.float32)
    for j, name in enumerate(names):
        column = series_numbers(frame[name], f"Column '{name}'")
        check_scalars(name, column)
        whole[:, j] = column
    return whole


def check_some(names: Sequence[Any]) -> None:
    """Reject inputs without columns."""
    if not names:
        raise InputError("A table's inputs should have at least one column. Found none.")


def check_scalars(name: Any, column: np.ndarray) -> None:
    """Reject a column of arrays among the columns of a matrix."""
    if column.ndim > 1:
        raise InputError(f"Column '{name}' should hold one number per row. Found arrays; name it alone, as a string.")


def series_numbers(series: Any, what: str) -> np.ndarray:
    """A column's numbers; with missing values they are real numbers with NaN."""
    import pandas

    if series.ndim != 1:
        raise InputError(f"{what} should be one column. Found several of that name; rename them.")
    types, dtype = pandas.api.types, series.dtype
    if types.is_bool_dtype(dtype) or types.is_numeric_dtype(dtype):
        if types.is_complex_dtype(dtype):
            raise InputError(f"{what} should hold numbers. Found {dtype}; split it into real columns.")
        if not series.hasnans:
            plain = series.to_numpy(dtype=None if isinstance(dtype, np.dtype) else _numpy_type(dtype, types))
            return np.asarray(plain)
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
    if isinstance(dtype, pandas.CategoricalDtype):
        raise InputError(f"{what} should hold numbers. Found categories; encode them, e.g. by `.cat.codes`.")
    there = list(series.dropna())
    strings = [each for each in there if isinstance(each, str)]
    if strings:
        remedy = "encode them, e.g. by `pandas.to_numeric` or `pandas.get_dummies`"
        raise InputError(f"{what} should hold numbers. Found strings such as {strings[0]!r}; {remedy}.")
    if not there or types.is_object_dtype(dtype):
        entries = np.empty(len(series), dtype=object)
        entries[:] = list(series)
        return object_numbers(entries, what)
    raise InputError(f"{what} should hold numbers. Found {dtype}; convert it to a number, e.g. of days.")


def _numpy_type(dtype: Any, types: Any) -> Any:
    """The NumPy type of a nullable or Arrow column without missing values."""
    if types.is_bool_dtype(dtype):
        return np.bool_
    return np.float64 if types.is_float_dtype(dtype) else np.int64
