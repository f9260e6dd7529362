"""Columns of a table by name: a pandas DataFrame, a HuggingFace `datasets.Dataset` or a dict of arrays."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from fedhv.problem.arrays import as_inputs, as_targets
from fedhv.problem.frames import check_scalars, check_some, frame_numbers, is_frame, series_numbers
from fedhv.problem.objects import is_missing
from fedhv.problem.trees import Inputs, leaves, tree_map
from fedhv.support.errors import InputError, unknown

Columns: TypeAlias = Any
"""A column's name, a list of names (the columns of a matrix), or a tuple or dict of these."""


def read_columns(table: Any, columns: Columns, single: bool = False) -> Any:
    """Inputs from columns; with `single`, a sequence with one entry per row, which may differ in shape."""
    if single:
        return Zipped(_structured(columns, lambda one: column(table, one, ragged=True), lambda many: side(table, many)))
    made = _structured(columns, lambda one: column(table, one), lambda many: side(table, many))
    return tree_map(as_inputs, made)


def read_targets(table: Any, columns: Sequence[Columns]) -> list[Any]:
    """Every task's targets; several columns of one task form a matrix."""
    return [
        np.stack([np.asarray(as_targets(column(table, name), 0)) for name in each], axis=1)
        if isinstance(each, list | tuple) and each
        else column(table, each)
        for each in columns
    ]


def _structured(columns: Columns, one: Any, many: Any) -> Inputs:
    if hasattr(columns, "tolist"):  # an array or a pandas Index of names
        columns = columns.tolist()
    if isinstance(columns, Mapping):
        return {str(name): _structured(each, one, many) for name, each in columns.items()}
    if isinstance(columns, tuple):
        return tuple(_structured(each, one, many) for each in columns)
    return many(columns) if isinstance(columns, list) else one(columns)


class Zipped(Sequence[Any]):
    """Row i of every part, in the parts' structure."""

    def __init__(self, parts: Inputs) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return len(leaves(self.parts)[0])

    def __getitem__(self, i: Any) -> Any:
        return tree_map(lambda part: part[i], self.parts)


def side(table: Any, names: Sequence[Any]) -> np.ndarray:
    """Columns as an n × p matrix of float32. A missing value is an error that names the column."""
    if is_frame(table):
        for name in names:
            _check_name(table, name)
        whole = frame_numbers(table, names)
    else:
        check_some(names)
        parts = [np.asarray(column(table, name), np.float32) for name in names]
        for name, part in zip(names, parts, strict=True):
            check_scalars(name, part)
            if len(part) != len(parts[0]):
                raise InputError(
                    f"A table's columns should have one length. Found {len(parts[0])} rows in '{names[0]}', "
                    f"{len(part)} in '{name}'."
                )
        whole = np.stack(parts, axis=1)
    gaps = np.isnan(whole).sum(axis=0)
    if gaps.any():
        j = int(gaps.argmax())
        raise InputError(
            f"Input column '{names[j]}' should have no missing values. Found {gaps[j]} missing values; fill them in, "
            "e.g. by the column's median, or leave these rows out."
        )
    return whole


def column(table: Any, name: Any, ragged: bool = False) -> Any:
    """One column as an array, missing values as NaN; with `ragged`, entries may be arrays of different lengths."""
    _check_name(table, name)
    if is_frame(table):
        if ragged and table[name].dtype == object:
            return list(table[name])
        return series_numbers(table[name], f"Column '{name}'")
    values = table[name]
    if is_hub(table):
        _check_feature(table, name)
        values = table.with_format("numpy")[name][:]
    if ragged:
        return values
    held = as_inputs(values, f"column '{name}'") if len(values) else np.empty(0)
    return held.array if hasattr(held, "array") else np.asarray(held)


def names_of(table: Any) -> list[Any]:
    """A table's columns."""
    if is_frame(table):
        return list(table.columns)
    if is_hub(table):
        return list(table.column_names)
    if isinstance(table, Mapping) and not _of_hub(table):
        return list(table)
    found = type(table).__name__
    if _of_hub(table) and isinstance(table, Mapping):
        raise InputError(f"A table should be one split of a dataset. Found a {found}; give e.g. dataset['train'].")
    if _of_hub(table):
        raise InputError(f"A table should have all its rows. Found a {found}; load it without `streaming=True`.")
    raise InputError(f"A table should be a DataFrame, a datasets.Dataset or a dict of columns. Found a {found}.")


def is_hub(table: Any) -> bool:
    """Whether this is a `datasets.Dataset`."""
    return _of_hub(table) and hasattr(table, "column_names") and hasattr(table, "__len__") and hasattr(table, "select")


def _of_hub(table: Any) -> bool:
    return type(table).__module__.partition(".")[0] == "datasets"


def _check_name(table: Any, name: Any) -> None:
    names = names_of(table)
    if getattr(name, "ndim", 0):
        raise InputError(f"A column should be given by its name. Found a {type(name).__name__}; add it to the table.")
    if name not in names:
        raise unknown("column", str(name), map(str, names))


def _check_feature(table: Any, name: str) -> None:
    """Reject text, with the usual conversions of HuggingFace datasets."""
    feature = table.features[name]
    if getattr(feature, "dtype", None) in ("string", "large_string"):
        raise InputError(
            f"Column '{name}' should hold numbers. Found text; make token ids or class numbers of it first, with "
            "dataset.map(…) or dataset.class_encode_column(…)."
        )


def client_lists(table: Any, name: Any, rows: int) -> list[np.ndarray]:
    """The rows of every client in a column, of `rows`; clients are in the order of the sorted names."""
    _check_name(table, name)
    if is_frame(table) and is_frame(table[name]):
        raise InputError(f"Column '{name}' should be one column. Found several of that name; rename them.")
    given = list((table.with_format(None) if is_hub(table) else table)[name])  # a format may hide the column
    values = np.empty(len(given), dtype=object)
    for i, each in enumerate(given):  # one by one: tuples would become rows of a matrix
        values[i] = each
    gaps = sum(is_missing(each) for each in given)
    if gaps:
        raise InputError(
            f"Column '{name}' should name every row's client. Found {gaps} rows without one; fill them in or leave "
            "them out."
        )
    odd = next((each for each in given if not isinstance(each, Hashable)), None)
    if odd is not None:
        found = type(odd).__name__
        raise InputError(f"Column '{name}' should name every row's client by a number or text. Found a {found}.")
    if len(given) != rows:
        raise InputError(f"Column '{name}' should name the client of each of the {rows} rows. Found {len(given)} rows.")
    try:
        names, codes = np.unique(values, return_inverse=True)
    except TypeError:  # names of several types have no order
        names, codes = np.unique([str(each) for each in given], return_inverse=True)
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.searchsorted(codes[order], np.arange(1, len(names))))
