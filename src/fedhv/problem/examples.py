"""Examples: inputs and targets, from arrays, tables and datasets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedhv.problem.arrays import LARGE, as_inputs, as_targets
from fedhv.problem.items import read_items
from fedhv.problem.missing import Masks, as_masks
from fedhv.problem.stored import Collated, Stored
from fedhv.problem.tables import Columns, read_columns, read_targets
from fedhv.problem.trees import Inputs, leaves, tree_map

Collate = Callable[[list[Any]], Inputs]
"""Makes the inputs of a minibatch from the inputs of single examples."""


@dataclass(frozen=True)
class Examples:
    """n inputs and, for every task, n targets.

    Attributes:
        inputs: A tensor; or a tuple of tensors, which are the model's positional arguments; or a dict of tensors, its
            keyword arguments. Memory maps and large arrays are read by index when a minibatch needs them.
        targets: One tensor per task. In a problem, missing targets are 0.
        labelled: For every task a mask of the present labels, of the targets' shape, or None if all are present; None
            instead of the tuple if no task has a mask.
    """

    inputs: Inputs
    targets: tuple[Tensor, ...]
    labelled: Masks | None = None

    @classmethod
    def of(
        cls,
        inputs: Any,
        targets: Sequence[Any],
        labelled: Sequence[Any] | None = None,
        collate: Collate | None = None,
        large: int = LARGE,
    ) -> Examples:
        """Examples from arrays, tensors or pandas columns. Real numbers become float32, like the model's parameters.

        Args:
            inputs: An array, or a tuple or dict of arrays with a common first axis. `np.memmap` stays on disk.
            targets: One array per task; NaN for a missing target, None if no example has one.
            labelled: For every task None or booleans, False for a missing label.
            collate: Makes a minibatch from a list of entries of `inputs`, which may then differ in length;
                `fedhv.padded` pads them.
            large: Arrays with more bytes are converted minibatch by minibatch.

        Examples:
            >>> examples = Examples.of(np.zeros((3, 5)), [[0, 1, 1], [0.5, np.nan, 2.0]])
            >>> len(examples)
            3
        """
        held = as_inputs(inputs, large=large) if collate is None else Collated(inputs, collate)
        first = leaves(held)[0]
        made = tuple(as_targets(each, len(first)) for each in targets)
        return cls(held, made, as_masks(labelled, made))

    @classmethod
    def from_table(
        cls,
        table: Any,
        inputs: Columns,
        targets: Mapping[str, Columns] | Sequence[Columns],
        collate: Collate | None = None,
    ) -> Examples:
        """Examples from a pandas DataFrame, a HuggingFace `datasets.Dataset` or a dict of arrays.

        Args:
            table: A table with named columns.
            inputs: A column's name; a list of names, whose columns become an n × p matrix of float32; or a tuple or
                dict of these, for a model with several arguments.
            targets: For every task its column, or a list of columns.
            collate: As in `of`.

        Examples:
            >>> Examples.from_table(frame, inputs=["age", "weight"], targets={"risk": "risk", "stay": "days"})
        """
        columns = list(targets.values()) if isinstance(targets, Mapping) else list(targets)
        return cls.of(read_columns(table, inputs, collate is not None), read_targets(table, columns), collate=collate)

    @classmethod
    def from_dataset(
        cls,
        dataset: Any,
        inputs: Any = None,
        targets: Sequence[Any] | Mapping[str, Any] | None = None,
        collate: Collate | None = None,
        in_memory: bool = True,
    ) -> Examples:
        """Examples from a map-style torch `Dataset`, or any sequence of items.

        Args:
            dataset: Its items are (x, y), (x, (y1, y2, …)) for several tasks, or dicts. An item must not change between
                readings: random transforms belong into a problem's `augment`.
            inputs: For dicts, the key of the inputs, or a tuple, list or dict of keys.
            targets: For dicts, every task's key.
            collate: As in `of`.
            in_memory: Whether to read all inputs now. Otherwise inputs are read for every minibatch, and only the
                targets are in memory.

        Examples:
            >>> Examples.from_dataset(TensorDataset(torch.zeros(3, 5), torch.tensor([0, 1, 1])))
        """
        items, made = read_items(dataset, inputs, targets)
        if not in_memory:
            return cls.of(items, made, collate=_stacked if collate is None else collate)
        read = list(items)
        return cls.of(read if collate else _stacked(read), made, collate=collate)

    def __len__(self) -> int:
        return len(leaves(self.inputs)[0])

    def __getitem__(self, index: Any) -> Examples:
        return self._each(lambda each: each[index])

    def to(self, device: torch.device | str) -> Examples:
        """The same examples on a device; inputs that are not resident are moved minibatch by minibatch."""
        return self._each(lambda each: each.to(device))

    def fold(self, rows: int, columns: int) -> Examples:
        """The first axis of every part as two: n = rows × columns."""
        return self._each(lambda each: each.view(rows, columns, *each.shape[1:]))

    def labels(self, task: int) -> np.ndarray:
        """A task's targets as an array, for counting; -1 for a missing one."""
        targets = self.targets[task].cpu().numpy()
        mask = None if self.labelled is None else self.labelled[task]
        return targets if mask is None else np.where(mask.cpu().numpy(), targets, -1)

    def with_inputs(self, inputs: Inputs) -> Examples:
        """Other inputs for the same targets."""
        return Examples(inputs, self.targets, self.labelled)

    @property
    def resident(self) -> bool:
        """Whether all inputs are in memory with one shape, so that an engine may store them on its device."""
        return all(isinstance(leaf, Tensor) or leaf.resident for leaf in leaves(self.inputs))

    def _each(self, function: Callable[[Any], Any]) -> Examples:
        """The function applied to inputs, targets and masks."""
        masks = self.labelled and tuple(None if mask is None else function(mask) for mask in self.labelled)
        return Examples(tree_map(function, self.inputs), tuple(function(t) for t in self.targets), masks)


def _stacked(items: Sequence[Any]) -> Inputs:
    """The inputs of single examples of one shape, stacked part by part."""
    first = items[0]
    if isinstance(first, Mapping):
        return {name: _stacked([item[name] for item in items]) for name in first}
    if isinstance(first, tuple):
        return tuple(_stacked(list(parts)) for parts in zip(*items, strict=True))
    held = as_inputs(list(items))
    return held.read(torch.arange(len(held)).numpy()) if isinstance(held, Stored) else held
