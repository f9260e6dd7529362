"""Missing labels: detection, masks and checks.

A target is missing if it is NaN, if it equals the task's mark (`missing=`), or if the user's mask is False. Examples
then contain 0 instead, and a mask of the present labels for that task. A task without missing labels has no mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedhv.problem.tasks import Task
from fedhv.support.errors import InputError

if TYPE_CHECKING:
    from fedhv.problem.clients import Clients
    from fedhv.problem.examples import Examples

Masks = tuple[Tensor | None, ...]
"""For every task the mask of its labels, of its targets' shape, or None if all are present."""


def as_masks(labelled: Sequence[Any] | None, targets: Sequence[Tensor]) -> Masks | None:
    """Masks from the user's: for every task n booleans, booleans of the targets' shape, or None."""
    if labelled is None:
        return None
    if not isinstance(labelled, list | tuple):
        found = f"a {type(labelled).__name__}"
        raise InputError(f"`labelled` should be a list, a mask or None for every task. Found {found}.")
    if len(labelled) != len(targets):
        raise InputError(
            f"`labelled` should have a mask or None for every task ({len(targets)}). Found {len(labelled)} of them."
        )
    return tuple(_mask(i, mask, target) for i, (mask, target) in enumerate(zip(labelled, targets, strict=True)))


def _mask(i: int, given: Any, targets: Tensor) -> Tensor | None:
    if given is None:
        return None
    mask = torch.as_tensor(np.array(given))
    if mask.dtype != torch.bool:
        raise InputError(f"The mask of task {i} should hold booleans, True where labelled. Found {mask.dtype}.")
    if mask.shape == targets.shape:
        return mask
    if mask.shape != targets.shape[:1]:
        raise InputError(
            f"The mask of task {i} should have shape {tuple(targets.shape[:1])}, or that of its targets, "
            f"{tuple(targets.shape)}. Found {tuple(mask.shape)}."
        )
    return mask.view(-1, *[1] * (targets.ndim - 1)).expand(targets.shape).clone()


def marked(task: Task, targets: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """A task's targets with 0 for missing ones, and the mask of present ones; None if all are present."""
    if mask is None and task.missing is None and not targets.is_floating_point():
        return targets, None
    there = torch.ones_like(targets, dtype=torch.bool) if mask is None else mask
    if targets.is_floating_point():
        there = there & ~targets.isnan()
    if task.missing is not None:
        there = there & (targets != task.missing)
    if bool(there.all()):
        return targets, None
    targets = torch.where(there, targets, torch.zeros((), dtype=targets.dtype))
    if task.whole and targets.is_floating_point() and bool((targets == targets.round()).all()):
        targets = targets.long()  # with NaN, classes were real numbers
    if task.shape and targets.ndim == 1 and not bool(there.any()):  # a task given as None
        targets, there = (each.view(-1, 1).expand(-1, *task.shape).clone() for each in (targets, there))
    return targets, there


def rows(mask: Tensor) -> Tensor:
    """The examples that have a label of a task."""
    return mask.flatten(1).any(dim=1) if mask.ndim > 1 else mask


def check_entries(task: Task, mask: Tensor) -> None:
    """Entries of one target may be missing only where the task knows the loss of each."""
    if mask.ndim == 1 or (task.entry_loss is not None and task.entry_score is not None):
        return
    several = mask.flatten(1)
    if bool((several.any(dim=1) & ~several.all(dim=1)).any()):
        lacks = "entry_loss" if task.entry_loss is None else "entry_score"
        raise InputError(
            f"Task '{task.name}' expects targets that are there or missing as a whole. Found some with missing "
            f"entries; give the task an `{lacks}`, or mark these targets missing."
        )


def check_labels(problem: str, tasks: Sequence[Task], masks: Masks | None, clients: Clients) -> None:
    """Reject a task without labels, and a client without labels."""
    if masks is None:
        return
    held = clients.indices
    for task, mask in zip(tasks, masks, strict=True):
        if mask is not None and clients.complete and not bool(rows(mask)[torch.from_numpy(held)].any()):
            raise no_labels(problem, task)
    if any(mask is None for mask in masks):
        return
    anything = torch.stack([rows(mask) for mask in masks if mask is not None]).any(dim=0).numpy()
    counts = np.add.reduceat(anything[held].astype(np.int64), clients.offsets[:-1])
    if counts.min() == 0:
        raise InputError(
            f"Every client should have at least one label. Found none with client {int(counts.argmin())}; leave it out."
        )


def no_labels(problem: str, task: Task) -> InputError:
    """The error for a task that no client has a label of."""
    return InputError(
        f"Problem '{problem}': no client has a label of task '{task.name}'. Leave the task out, or check its "
        "column and its mark for missing labels."
    )


def check_test_labels(problem: str, tasks: Sequence[Task], masks: Masks | None) -> None:
    """Reject a task without test labels."""
    for task, mask in zip(tasks, masks or (), strict=False):
        if mask is not None and not bool(mask.any()):
            raise InputError(
                f"Problem '{problem}', test examples: expected labels of every task. Found none of task '{task.name}'; "
                "leave the task out, or check its column and its mark for missing labels."
            )


def with_whole_classes(tasks: Sequence[Task], parts: Sequence[Examples]) -> list[Examples]:
    """Where one client's classes are real numbers because of a NaN among them, those of the others may be as well."""
    gaps = [
        task.whole and any(_has_nan(part.targets[i]) for part in parts if len(part.targets) == len(tasks))
        for i, task in enumerate(tasks)
    ]
    if not any(gaps):
        return list(parts)
    some = [task if gap else replace(task, whole=False) for task, gap in zip(tasks, gaps, strict=True)]
    return [whole_classes(some, part) if len(part.targets) == len(tasks) else part for part in parts]


def _has_nan(targets: Tensor) -> bool:
    return targets.is_floating_point() and bool(targets.isnan().any())


def whole_classes(tasks: Sequence[Task], examples: Examples) -> Examples:
    """Classes as integers, if a column with missing values has them as real numbers."""
    targets = tuple(
        target.long()
        if task.whole and target.is_floating_point() and bool((target == target.round()).all())
        else target
        for task, target in zip(tasks, examples.targets, strict=True)
    )
    return replace(examples, targets=targets)
