"""Items of a map-style torch `Dataset`, as inputs and targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from fedhv.problem.objects import is_missing
from fedhv.support.errors import FedHVError, InputError, unknown

Pick = Callable[[Any], Any]


def read_items(
    dataset: Any, inputs: Any = None, targets: Sequence[Any] | Mapping[str, Any] | None = None
) -> tuple[Sequence[Any], list[Any]]:
    """The items' inputs, which are read one by one later, and every task's targets."""
    if isinstance(dataset, DataLoader):
        raise InputError("Examples should come from a Dataset. Found a DataLoader; give its dataset, loader.dataset.")
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        found = type(dataset).__name__
        raise InputError(
            f"A dataset should have items by number (__getitem__ and __len__). Found a {found}; give list(dataset)."
        )
    if len(dataset) == 0:
        raise InputError("A dataset should have at least one item. Found none.")
    keys = list(targets.values()) if isinstance(targets, Mapping) else targets
    read = Items(dataset, lambda item: _inputs(item, inputs))
    first = _targets(read.item(0), keys)
    if not _same(read[0], read[0]):
        raise InputError(
            "A dataset's items should not change between readings. Found item 0 changed; move random transforms into "
            "the problem's `augment`."
        )
    columns: list[list[Any]] = [[] for _ in first]
    for i in range(len(dataset)):
        given = _targets(read.item(i), keys)
        if len(given) != len(columns):
            raise InputError(
                f"Items should have targets for one number of tasks. Found {len(first)}, then {len(given)}."
            )
        for values, each in zip(columns, given, strict=True):
            values.append(each)
    return read, [_column(values) for values in columns]


class Items(Sequence[Any]):
    """A part of every item of a dataset, read on access."""

    def __init__(self, dataset: Any, pick: Pick) -> None:
        self.dataset = dataset
        self.pick = pick

    def __len__(self) -> int:
        return len(self.dataset)

    def item(self, i: int) -> Any:
        """Item i of the dataset."""
        try:
            return self.dataset[i]
        except FedHVError:
            raise
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
            raise InputError(f"Item {i} of the dataset could not be read. Found {found}") from error

    def __getitem__(self, i: Any) -> Any:
        if i >= len(self):
            raise IndexError(i)
        return self.pick(self.item(i))


def _inputs(item: Any, keys: Any) -> Any:
    if isinstance(item, Mapping):
        if keys is None:
            raise InputError(
                f"The dataset's items are dicts with keys {list(item)}. Name the inputs and the targets among them: "
                "`inputs=`, `targets=`."
            )
        return _picked(item, keys)
    if keys is not None:
        raise InputError(f"`inputs` and `targets` name keys of dicts. Found items that are a {type(item).__name__}.")
    if not isinstance(item, tuple | list) or len(item) != 2:
        size = f" of {len(item)}" if isinstance(item, tuple | list) else ""
        raise InputError(
            f"A dataset's items should be (inputs, target), (inputs, (target, target)) or dicts. Found a "
            f"{type(item).__name__}{size}."
        )
    return _plain(item[0])


def _targets(item: Any, keys: Sequence[Any] | None) -> tuple[Any, ...]:
    if isinstance(item, Mapping):
        if not keys:
            raise InputError(f"Name the targets among the items' keys {list(item)}: `targets=`.")
        return tuple(_picked(item, key) for key in keys)
    _inputs(item, None if keys is None else ())
    given = item[1]
    return tuple(given) if isinstance(given, tuple | list) else (given,)


def _picked(item: Mapping[Any, Any], keys: Any) -> Any:
    if isinstance(keys, Mapping):
        return {name: _picked(item, each) for name, each in keys.items()}
    if isinstance(keys, tuple):
        return tuple(_picked(item, each) for each in keys)
    if isinstance(keys, list):
        return np.array([_picked(item, each) for each in keys], np.float32)
    if keys not in item:
        raise unknown("key of the dataset's items", str(keys), map(str, item))
    return _plain(item[keys])


def _plain(value: Any) -> Any:
    """Images as arrays; tensors, arrays and structures of them unchanged."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return tuple(_plain(each) for each in value)
    return np.asarray(value) if hasattr(value, "__array_interface__") else value


def _column(values: list[Any]) -> Any:
    """One task's targets; None becomes NaN."""
    if all(is_missing(each) for each in values):
        return None
    if all(isinstance(each, Tensor) for each in values):
        return list(values)
    entries = np.empty(len(values), dtype=object)
    for i, each in enumerate(values):
        entries[i] = None if is_missing(each) else np.asarray(each)
    return entries


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Mapping):
        return all(_same(a[name], b[name]) for name in a)
    if isinstance(a, tuple):
        return all(_same(x, y) for x, y in zip(a, b, strict=True))
    x, y = np.asarray(a), np.asarray(b)
    return np.array_equal(x, y, equal_nan=x.dtype.kind == "f" and y.dtype.kind == "f")
