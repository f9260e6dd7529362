"""Prediction tasks: a name, a loss and a score, both per example.

A loss returns one number per example, so every mean in the program is an exact mean over examples. A score is the
fraction of an example that was predicted correctly, in [0, 1]; its mean times 100 is the task's accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedhv.problem.metrics import Metric, as_metrics
from fedhv.support.errors import InputError
from fedhv.support.numbers import is_number, is_whole
from fedhv.support.wording import counted

PerExample = Callable[[Tensor, Tensor], Tensor]
"""(outputs, targets) of n examples to n numbers."""

Scale = float | Literal["initial"] | None
"""The unit of a loss: a number, its value at the initial model ("initial"), or None for the loss as it is."""


@dataclass(frozen=True)
class Task:
    """One objective of the shared model.

    Attributes:
        name: Its name in tables and figures.
        loss: Per-example training loss, (outputs, targets) -> n numbers.
        score: Per-example score in [0, 1], (outputs, targets) -> n numbers.
        check: Raises `InputError` when targets are not what the loss expects.
        outputs: How many numbers the model's output has for an example, where that is certain.
        missing: A target of this value is missing, as NaN always is.
        whole: Whether targets are whole numbers, as classes are.
        shape: The shape of one example's target, where that is certain.
        entry_loss: Of targets with several entries the loss of each, in the targets' shape or n × entries, whose mean
            is `loss`: entries may then be missing one by one.
        entry_score: The same of `score`.
        metrics: What else judges the task over the whole test set, the main metric first: names of `METRICS`, or
            `Metric` objects.
        scale: The unit of the loss in training, reports and evaluations: a number, or "initial" for its mean at the
            initial model, so that losses of different units begin at 1; None for the loss as it is.
        scored: What the score counts. Scores that count different things cannot be compared; tables say so.
    """

    name: str
    loss: PerExample
    score: PerExample
    check: Callable[[Tensor], None] = lambda targets: None
    outputs: int | None = None
    missing: float | None = None
    whole: bool = False
    shape: tuple[int, ...] | None = None
    entry_loss: PerExample | None = None
    entry_score: PerExample | None = None
    metrics: Sequence[str | Metric] = ()
    scale: Scale = None
    scored: str = "accuracy"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):  # a frame may have numbers as columns; files and messages need text
            raise InputError(f"A task's name should be text. Found {self.name!r}; give the column by `targets`.")
        for field in ("scale", "missing"):
            value = getattr(self, field)
            object.__setattr__(self, field, value.item() if isinstance(value, np.generic) else value)
        if self.missing is not None and not is_number(self.missing):
            raise InputError(f"Task '{self.name}': `missing` should be a number. Found {self.missing!r}.")
        number = is_number(self.scale) and 0 < float(self.scale or 0) < float("inf")
        if self.scale not in (None, "initial") and not number:
            raise InputError(
                f"Task '{self.name}': `scale` should be a positive number or 'initial'. Found {self.scale!r}."
            )
        object.__setattr__(self, "metrics", as_metrics(self.name, self.metrics))


def classification(
    name: str,
    classes: int,
    missing: int | None = None,
    metrics: Sequence[str | Metric] = (),
    scale: Scale = None,
) -> Task:
    """One class out of `classes`: cross-entropy on logits (or log-probabilities); top-1 accuracy.

    Args:
        name: What tables and figures call it.
        classes: How many classes there are; labels are 0, 1, ….
        missing: The label that says that there is none, for example -1.
        metrics: Over the whole test set, the main one first, such as "roc_auc".
        scale: The unit of the loss: a number, "initial" for its value at the initial model, or None.
    """
    if not is_whole(classes) or classes < 2:
        raise InputError(f"Task '{name}' should have at least 2 classes. Found {classes!r}.")
    if missing is not None and (not is_whole(missing) or int(missing) in range(classes)):
        raise InputError(f"Task '{name}': `missing` should be a whole number that is not a class. Found {missing!r}.")

    def check(targets: Tensor) -> None:
        if targets.ndim != 1:
            raise InputError(f"Task '{name}' expects one label per example. Found shape {tuple(targets.shape)}.")
        if targets.is_floating_point():
            raise InputError(
                f"Task '{name}' expects whole-number class labels. Found dtype {targets.dtype}; convert them to int64."
            )
        low, high = int(targets.min()), int(targets.max())
        if low < 0 or high >= classes:
            raise InputError(f"Task '{name}' expects labels from 0 to {classes - 1}. Found {low} to {high}.")

    return Task(
        name,
        loss=lambda outputs, targets: F.cross_entropy(outputs, targets.long(), reduction="none"),
        score=lambda outputs, targets: (outputs.argmax(dim=1) == targets).float(),
        check=check,
        outputs=classes,
        missing=None if missing is None else int(missing),
        whole=True,
        shape=(),
        metrics=metrics,
        scale=scale,
    )


def multilabel(
    name: str,
    labels: int,
    missing: int | None = None,
    metrics: Sequence[str | Metric] = (),
    scale: Scale = None,
) -> Task:
    """`labels` yes/no attributes: mean binary cross-entropy on logits; share of attributes predicted right.

    Args:
        name: What tables and figures call it.
        labels: How many attributes there are.
        missing: The entry that says that this attribute is unknown, for example -1; NaN always says so.
        metrics: Over the whole test set, the main one first, such as "roc_auc".
        scale: The unit of the loss: a number, "initial" for its value at the initial model, or None.
    """
    if not is_whole(labels) or labels < 1:
        raise InputError(f"Task '{name}' should have at least 1 label. Found {labels!r}.")
    if missing is not None and (not is_whole(missing) or int(missing) in (0, 1)):
        raise InputError(f"Task '{name}': `missing` should be a whole number other than 0 and 1. Found {missing!r}.")

    def check(targets: Tensor) -> None:
        if targets.ndim != 2 or targets.shape[1] != labels:
            each = counted(labels, "label")
            raise InputError(f"Task '{name}' expects {each} per example. Found shape {tuple(targets.shape)}.")
        if not bool(((targets == 0) | (targets == 1)).all()):
            raise InputError(f"Task '{name}' expects labels 0 or 1. Found other values.")

    def entries(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype), reduction="none")

    def right(outputs: Tensor, targets: Tensor) -> Tensor:
        return ((outputs > 0) == (targets > 0)).float()  # sigmoid(z) > 0.5 is z > 0

    return Task(
        name,
        loss=lambda outputs, targets: entries(outputs, targets).mean(dim=1),
        score=lambda outputs, targets: right(outputs, targets).mean(dim=1),
        entry_loss=entries,
        entry_score=right,
        check=check,
        outputs=labels,
        missing=None if missing is None else int(missing),
        shape=(labels,),
        metrics=metrics,
        scale=scale,
    )


def regression(
    name: str,
    tolerance: float,
    missing: float | None = None,
    metrics: Sequence[str | Metric] = (),
    scale: Scale = None,
) -> Task:
    """Real-valued targets: mean squared error; the score is the share within `tolerance` of the target.

    Args:
        name: What tables and figures call it.
        tolerance: An output this near to its target counts as right.
        missing: The number that says that there is no target, for example -999; NaN always says so.
        metrics: Over the whole test set, the main one first, such as "rmse".
        scale: The unit of the loss: a number, "initial" for its value at the initial model, or None.
    """
    if not (isinstance(tolerance, int | float | np.number) and tolerance > 0):
        raise InputError(f"Parameter `tolerance` should be a positive number. Found `tolerance = {tolerance!r}`.")

    def error(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.reshape(targets.shape) - targets).reshape(targets.shape[0], -1)

    def check(targets: Tensor) -> None:
        if not bool(torch.isfinite(targets.float()).all()):
            raise InputError(f"Task '{name}' expects finite targets. Found NaN or infinity.")

    return Task(
        name,
        loss=lambda outputs, targets: error(outputs, targets).square().mean(dim=1),
        score=lambda outputs, targets: (error(outputs, targets).abs() <= tolerance).float().mean(dim=1),
        entry_loss=lambda outputs, targets: error(outputs, targets).square(),
        entry_score=lambda outputs, targets: (error(outputs, targets).abs() <= tolerance).float(),
        check=check,
        missing=missing,
        metrics=metrics,
        scale=scale,
        scored=f"share within {tolerance:g}",
    )


def check_score(task: Task, lowest: float, highest: float) -> None:
    """Reject scores outside [0, 1]: tables show 100 times their mean as an accuracy."""
    if lowest < 0 or highest > 1:
        found = lowest if lowest < 0 else highest
        raise InputError(
            f"The score of task '{task.name}' should be in [0, 1], since tables show its mean as a percentage. Found "
            f"{found:.4g}. Return a share of right answers, and give other measures as metrics=[...]."
        )
