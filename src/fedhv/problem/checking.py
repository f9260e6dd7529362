"""Checks of examples: at least one example, a target for every example, no NaN, labels in range."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from fedhv.problem.examples import Examples
from fedhv.problem.missing import check_entries, marked, rows
from fedhv.problem.stored import check_finite
from fedhv.problem.tasks import Task
from fedhv.problem.trees import leaves
from fedhv.support.errors import InputError
from fedhv.support.wording import counted


def as_tasks(problem: str, tasks: Any) -> tuple[Task, ...]:
    """The tasks as a tuple. Rejects a single task, and what is not a `Task`, such as a name."""
    if not isinstance(tasks, Iterable):
        found = type(tasks).__name__
        raise InputError(f"The tasks of problem '{problem}' should be a list. Found a {found}; put it in brackets.")
    made = tuple(tasks)
    for task in made:
        if not isinstance(task, Task):
            raise InputError(
                f"The tasks of problem '{problem}' should be made by classification, multilabel, regression or Task. "
                f"Found {task!r}."
            )
    return made


def checked(problem: str, split: str, examples: object, tasks: Sequence[Task]) -> Examples:
    """The examples with masks of missing labels. Complete examples are returned unchanged."""
    where = f"Problem '{problem}', {split} examples"
    if not isinstance(examples, Examples):
        found = type(examples).__name__
        raise InputError(f"{where}: expected Examples. Found a {found}; make them by Examples.of(inputs, targets).")
    n = len(examples)
    if n == 0:
        raise InputError(f"{where}: expected at least one. Found none.")
    if len(examples.targets) != len(tasks):
        raise InputError(
            f"{where}: expected targets for {counted(len(tasks), 'task')}. "
            f"Found {counted(len(examples.targets), 'target array')}."
        )
    lengths = [len(leaf) for leaf in leaves(examples.inputs)]
    if len(set(lengths)) > 1:
        raise InputError(f"{where}: expected all parts of the inputs to have one first axis. Found lengths {lengths}.")
    for task, targets in zip(tasks, examples.targets, strict=True):
        if len(targets) != n:
            raise InputError(f"{where}: expected {n} targets for task '{task.name}'. Found {len(targets)}.")
    try:
        for leaf in leaves(examples.inputs):
            check_finite(leaf)
        return _marked(examples, tasks)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _marked(examples: Examples, tasks: Sequence[Task]) -> Examples:
    """Only labels that are present are checked."""
    masks = examples.labelled or (None,) * len(tasks)
    pairs = [marked(*each) for each in zip(tasks, examples.targets, masks, strict=True)]
    for task, (targets, mask) in zip(tasks, pairs, strict=True):
        if mask is not None:
            check_entries(task, mask)
        labelled = targets if mask is None else targets[rows(mask)]
        if len(labelled):
            task.check(labelled)
    if all(mask is None for _, mask in pairs):
        return examples if examples.labelled is None else replace(examples, labelled=None)
    return replace(examples, targets=tuple(t for t, _ in pairs), labelled=tuple(mask for _, mask in pairs))
