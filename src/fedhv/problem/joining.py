"""The examples of several clients as one problem, without copies of large arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from fedhv.problem.arrays import LARGE
from fedhv.problem.examples import Collate, Examples
from fedhv.problem.frames import is_frame
from fedhv.problem.missing import no_labels
from fedhv.problem.stored import Collated, Concatenation, Joined
from fedhv.problem.tasks import Task
from fedhv.problem.trees import arranged, leaves, rebuild, structure
from fedhv.support.errors import InputError


def as_examples(
    whose: str, given: Any, tasks: Sequence[Task], collate: Collate | None = None, large: int = LARGE
) -> Examples:
    """Inputs and a list of targets, as a user gives them; or examples; or a torch `Dataset`.

    Columns of a frame of targets that have the names of the tasks are taken by name, others in their order.
    """
    if isinstance(given, Examples):
        return given
    if isinstance(given, Dataset):
        return Examples.from_dataset(given, collate=collate)
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise InputError(f"Problem: {whose} should be inputs and a list of targets, (x, [y1, y2]). {_found(given)}")
    inputs, targets = given
    if is_frame(targets):
        names = [task.name for task in tasks]
        columns = list(targets.columns)
        targets = [targets[name] for name in (names if set(columns) == set(names) else columns)]
    if isinstance(targets, str | Mapping) or not isinstance(targets, Iterable) or getattr(targets, "ndim", 2) < 2:
        raise InputError(
            f"Problem: the targets of {whose} should be a list, an array for every task. {_found(targets)}"
        )
    return Examples.of(inputs, list(targets), collate=collate, large=large)


def check_columns(clients: Sequence[Any], test: Any) -> None:
    """Reject frames of inputs whose columns differ, or have another order: their numbers would be mixed silently."""
    given = [*((f"client {k}", each) for k, each in enumerate(clients)), ("the test examples", test)]
    frames = [(whose, _frames(each[0])) for whose, each in given if isinstance(each, tuple | list) and len(each) == 2]
    for whose, own in frames[1:]:
        for found, first in zip(own, frames[0][1], strict=False):
            if found is not None and first is not None and found != first:
                raise InputError(
                    f"All clients' inputs should have the same columns in the same order. Found {found} with {whose}, "
                    f"{first} with {frames[0][0]}."
                )


def _frames(inputs: Any) -> list[list[Any] | None]:
    """The columns of every part of the inputs; None where a part is no frame."""
    if isinstance(inputs, Mapping):
        return [columns for name in sorted(inputs) for columns in _frames(inputs[name])]
    if isinstance(inputs, tuple):
        return [columns for each in inputs for columns in _frames(each)]
    return [list(inputs.columns) if is_frame(inputs) else None]


def _found(given: Any) -> str:
    size = f" of {len(given)}" if isinstance(given, Sequence) else ""
    return f"Found a {type(given).__name__}{size}."


def join(problem: str, tasks: Sequence[Task], parts: Sequence[Examples]) -> Examples:
    """All clients' examples, in the clients' order."""
    parts = _with_one_target_shape(problem, tasks, parts)
    for k, part in enumerate(parts):
        _check_structure(k, part, parts[0])
    parts = [part.with_inputs(arranged(part.inputs, parts[0].inputs)) for part in parts]
    for k, part in enumerate(parts):
        _check_alike(k, part, parts[0])
    columns = zip(*(leaves(part.inputs) for part in parts), strict=True)
    inputs = rebuild(parts[0].inputs, [_joined(column) for column in columns])
    targets = tuple(torch.cat([part.targets[i] for part in parts]) for i in range(len(tasks)))
    return Examples(inputs, targets, _masks(parts))


def _joined(column: Sequence[Any]) -> Any:
    """One part of the inputs of all clients."""
    if isinstance(column[0], Collated):
        return Collated(Concatenation([each.items for each in column]), column[0].collate)
    small = sum(each.nbytes for each in column) <= LARGE
    if small and all(isinstance(each, Tensor) or each.resident for each in column):
        return torch.cat([each if isinstance(each, Tensor) else each[:] for each in column])
    return column[0] if len(column) == 1 else Joined(column)


def _masks(parts: Sequence[Examples]) -> tuple[Tensor | None, ...] | None:
    if all(part.labelled is None for part in parts):
        return None
    masks: list[Tensor | None] = []
    for i, _ in enumerate(parts[0].targets):
        mine = [None if part.labelled is None else part.labelled[i] for part in parts]
        there = [
            torch.ones_like(part.targets[i], dtype=torch.bool) if mask is None else mask
            for mask, part in zip(mine, parts, strict=True)
        ]
        masks.append(None if all(mask is None for mask in mine) else torch.cat(there))
    return tuple(masks)


def _with_one_target_shape(problem: str, tasks: Sequence[Task], parts: Sequence[Examples]) -> list[Examples]:
    """If a client has no label of a task, its targets get the shape and type of the other clients'."""
    made = list(parts)
    for i, task in enumerate(tasks):
        absent = [k for k, part in enumerate(made) if _absent(part, i)]
        if len(absent) == len(made):
            raise no_labels(problem, task)
        like = next(part.targets[i] for k, part in enumerate(made) if k not in absent)
        for k in absent:
            shape = (len(made[k]), *like.shape[1:])
            masks = made[k].labelled or ()
            made[k] = Examples(
                made[k].inputs,
                _replaced(made[k].targets, i, torch.zeros(shape, dtype=like.dtype)),
                _replaced(masks, i, torch.zeros(shape, dtype=torch.bool)),
            )
    return made


def _absent(part: Examples, i: int) -> bool:
    mask = None if part.labelled is None else part.labelled[i]
    return mask is not None and not bool(mask.any())


def _replaced(values: Sequence[Any], i: int, value: Tensor) -> tuple[Any, ...]:
    return (*values[:i], value, *values[i + 1 :])


def _check_structure(k: int, examples: Examples, first: Examples) -> None:
    """Reject clients whose inputs have other parts."""
    if structure(examples.inputs) != structure(first.inputs):
        raise InputError(
            f"All clients' inputs should have the same parts. Found {_parts(examples)} with client {k}, "
            f"{_parts(first)} with client 0."
        )


def _check_alike(k: int, examples: Examples, first: Examples) -> None:
    """Reject clients whose examples differ in form or shape."""
    mine = [*leaves(examples.inputs), *examples.targets]
    others = [*leaves(first.inputs), *first.targets]
    for i, (each, other) in enumerate(zip(mine, others, strict=True)):
        if isinstance(each, Collated) != isinstance(other, Collated):
            raise InputError(
                "All clients' inputs should be arrays, or all be read by `collate` or `in_memory=False`. Found one of "
                f"each with clients {k} and 0."
            )
        if isinstance(each, Collated):
            continue
        if each.shape[1:] != other.shape[1:]:
            what = "targets" if i >= len(mine) - len(examples.targets) else "inputs"
            raise InputError(
                f"All clients' examples should have one shape. Found {what} of shape {tuple(each.shape[1:])} with "
                f"client {k}, {tuple(other.shape[1:])} with client 0."
            )


def _parts(examples: Examples) -> str:
    inputs = examples.inputs
    if isinstance(inputs, dict):
        return f"a dict of {list(inputs)}"
    return f"a tuple of {len(inputs)}" if isinstance(inputs, tuple) else "one array"
