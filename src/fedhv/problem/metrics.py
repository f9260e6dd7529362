"""Metrics over the whole test set: ROC-AUC, F1, RMSE, R² and others, and a user's own.

A task's loss and score are means over examples. Metrics like ROC-AUC are not: they need all outputs and targets at
once. They are computed by scikit-learn and SciPy, which the package needs in any case, on the labelled examples.

Where a task has several entries per example (a multilabel task), a metric is the mean over entries, each computed on
its own labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedhv.support.errors import InputError, unknown

if TYPE_CHECKING:
    from fedhv.problem.tasks import Task

BINS = 15
"""Of equal width, for the expected calibration error."""


@dataclass(frozen=True)
class Metric:
    """A number that judges all outputs of a task together.

    Attributes:
        name: What histories and tables call it.
        function: (outputs, targets) of the labelled test examples to a number. Both are tensors on the CPU, of the
            same shape where a model has as many outputs as targets. Where a task has several entries per example,
            missing ones are NaN.
        better: Whether "higher" or "lower" values are better.

    Examples:
        >>> largest = Metric("largest_error", lambda outputs, targets: float((outputs - targets).abs().max()), "lower")
        >>> regression("stay", tolerance=1.0, metrics=["rmse", largest])
    """

    name: str
    function: Callable[[Tensor, Tensor], float]
    better: Literal["higher", "lower"]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.name in ("accuracy", "loss"):
            raise InputError(
                "A metric's name should be text other than 'accuracy' and 'loss', which every task has. Found "
                f"{self.name!r}."
            )
        if self.better not in ("higher", "lower"):
            raise InputError(f"Metric '{self.name}': `better` should be 'higher' or 'lower'. Found {self.better!r}.")


def as_metrics(task: str, given: Sequence[str | Metric]) -> tuple[Metric, ...]:
    """Metrics as a user gives them, by name or as objects; the first is the main one."""
    if isinstance(given, str | Metric) or not isinstance(given, Sequence):
        raise InputError(f"Task '{task}': `metrics` should be a list. Found {given!r}.")
    found = []
    for each in given:
        if isinstance(each, str):
            if each not in METRICS:
                raise unknown("metric", each, METRICS, hint="A metric of your own is a fedhv.Metric.")
            each = METRICS[each]
        if not isinstance(each, Metric):
            raise InputError(f"Task '{task}': a metric should be a name or a fedhv.Metric. Found {each!r}.")
        found.append(each)
    names = [each.name for each in found]
    if len(set(names)) < len(names):
        raise InputError(f"Task '{task}': `metrics` should name every metric once. Found {names}.")
    return tuple(found)


def lower_is_better(task: Task) -> tuple[str, ...]:
    """The names of a task's metrics of which lower values are better."""
    return tuple(metric.name for metric in as_metrics(task.name, task.metrics) if metric.better == "lower")


def main_metric(task: Task, outputs: Tensor, targets: Tensor, mask: Tensor | None) -> tuple[float, int]:
    """The main metric on a few examples and the number of labels behind it; (0, 0) where they do not define it.

    The labels of one class have no ROC-AUC, for example: a client that holds out few examples may have only these.
    """
    labelled = int(mask.sum()) if mask is not None else targets.numel()
    if not task.metrics or not labelled:
        return 0.0, 0
    metrics = as_metrics(task.name, task.metrics)[:1]
    try:
        found = measure(replace(task, metrics=metrics), outputs, targets, mask)
    except InputError:
        return 0.0, 0
    value = next(iter(found.values()), math.nan)
    return (value, labelled) if math.isfinite(value) else (0.0, 0)


def measure(task: Task, outputs: Tensor, targets: Tensor, mask: Tensor | None) -> dict[str, float]:
    """Every metric of a task; none where outputs are not finite, as those of a run that diverged."""
    if not task.metrics or not bool(torch.isfinite(outputs).all()):
        return {}
    outputs, targets = outputs.cpu(), targets.cpu()
    if mask is not None:
        mask = mask.cpu()
        kept = mask.reshape(len(mask), -1).any(dim=1)
        outputs, targets, mask = outputs[kept], targets[kept], mask[kept]
        if targets.ndim > 1:
            targets = torch.where(mask, targets.double(), torch.nan)
    if outputs.numel() == targets.numel():  # n × 1 and n would be broadcast to n × n
        outputs = outputs.reshape(targets.shape)
    found = {}
    for metric in as_metrics(task.name, task.metrics):
        try:
            found[metric.name] = float(metric.function(outputs, targets))
        except InputError as error:
            raise InputError(f"Task '{task.name}', metric '{metric.name}': {error}") from None
        except Exception as error:
            raise InputError(
                f"Task '{task.name}', metric '{metric.name}': expected a number from the outputs and targets of the "
                f"test examples. Found {type(error).__name__}: {error}"
            ) from error
    return found


Column = tuple[np.ndarray, np.ndarray]
"""What is predicted for one entry, and its labels."""


def _mean(function: Callable[[np.ndarray, np.ndarray], float], columns: Sequence[Column]) -> float:
    return float(np.mean([function(predicted, labels) for predicted, labels in columns]))


def _entries(outputs: Tensor, targets: Tensor) -> list[Column]:
    """Outputs and targets, entry by entry, where they are labelled."""
    flat, wanted = outputs.double().reshape(len(targets), -1), targets.double().reshape(len(targets), -1)
    if flat.shape != wanted.shape:
        raise InputError(f"expected an output for every target. Found shapes {_shape(outputs)} and {_shape(targets)}.")
    columns = []
    for predicted, labels in zip(flat.numpy().T, wanted.numpy().T, strict=True):
        there = ~np.isnan(labels)
        if there.any():
            columns.append((predicted[there], labels[there]))
    return columns


def _shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def _is_classes(outputs: Tensor, targets: Tensor) -> bool:
    """Whether every example has one class, with a logit for each."""
    return targets.ndim == 1 and outputs.ndim == 2 and not targets.is_floating_point()


def _yes_or_no(outputs: Tensor, targets: Tensor) -> list[Column]:
    """Logits and labels 0 or 1: of two classes the second's, of more classes each against the others."""
    if _is_classes(outputs, targets):
        logs, labels = outputs.double().log_softmax(dim=1).numpy(), targets.numpy()
        classes = [1] if outputs.shape[1] == 2 else range(outputs.shape[1])
        return [(logs[:, c], (labels == c).astype(np.int64)) for c in classes]
    columns = _entries(outputs, targets)
    if any(not np.isin(labels, (0, 1)).all() for _, labels in columns):
        raise InputError("expected classes. Found real numbers; use a metric for numbers, such as 'rmse'.")
    return [(predicted, labels.astype(np.int64)) for predicted, labels in columns]


def _ranked(function: Callable[[np.ndarray, np.ndarray], float]) -> Callable[[Tensor, Tensor], float]:
    """A metric of how logits order the examples; entries whose test labels are all alike do not count."""

    def metric(outputs: Tensor, targets: Tensor) -> float:
        columns = [each for each in _yes_or_no(outputs, targets) if 0 < each[1].mean() < 1]
        if not columns:
            raise InputError("expected test labels of both classes. Found those of one; use more test examples.")
        return _mean(lambda logits, labels: function(labels, logits), columns)

    return metric


def _decided(binary: Callable[..., float], **several: Any) -> Callable[[Tensor, Tensor], float]:
    """A metric of predicted classes; `several` says how it averages over more than two."""

    def metric(outputs: Tensor, targets: Tensor) -> float:
        if _is_classes(outputs, targets):
            more = several if outputs.shape[1] > 2 else {}
            return float(binary(targets.numpy(), outputs.argmax(dim=1).numpy(), **more))
        return _mean(lambda logits, labels: binary(labels, logits > 0), _yes_or_no(outputs, targets))

    return metric


def _of_numbers(function: Callable[[np.ndarray, np.ndarray], float]) -> Callable[[Tensor, Tensor], float]:
    """A metric of real numbers."""

    def metric(outputs: Tensor, targets: Tensor) -> float:
        if _is_classes(outputs, targets):
            raise InputError("expected real numbers. Found classes; use a metric for classes, such as 'roc_auc'.")
        return _mean(function, _entries(outputs, targets))

    return metric


# scikit-learn takes a second to import: only where a task has a metric.


def _roc_auc(labels: np.ndarray, logits: np.ndarray) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(labels, logits))


def _average_precision(labels: np.ndarray, logits: np.ndarray) -> float:
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(labels, logits))


def _f1(labels: np.ndarray, predicted: np.ndarray, **more: Any) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(labels, predicted, zero_division=0.0, **more))


def _balanced_accuracy(labels: np.ndarray, predicted: np.ndarray) -> float:
    """The mean over the classes that there are of the share of each that is predicted right."""
    return float(np.mean([(predicted[labels == c] == c).mean() for c in np.unique(labels)]))


def _calibration_error(outputs: Tensor, targets: Tensor) -> float:
    """The mean difference of confidence and accuracy over bins of equal width, weighted by their examples."""
    if _is_classes(outputs, targets):
        confidence, predicted = outputs.double().softmax(dim=1).max(dim=1)
        return _gap(confidence.numpy(), (predicted == targets).numpy())
    return _mean(
        lambda logits, labels: _gap(1 / (1 + np.exp(-np.abs(logits))), (logits > 0) == labels),
        _yes_or_no(outputs, targets),
    )


def _gap(confidence: np.ndarray, right: np.ndarray) -> float:
    bins = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    difference = np.bincount(bins, confidence, BINS) - np.bincount(bins, right, BINS)
    return float(np.abs(difference).sum() / len(confidence))


def _r2(predicted: np.ndarray, targets: np.ndarray) -> float:
    spread = np.square(targets - targets.mean()).sum()
    if spread == 0:
        raise InputError("expected test targets that differ. Found equal ones; use more test examples.")
    return float(1 - np.square(predicted - targets).sum() / spread)


def _rank_correlation(predicted: np.ndarray, targets: np.ndarray) -> float:
    """Spearman's; 0 where all outputs are equal, which order nothing."""
    from scipy.stats import spearmanr

    if np.ptp(predicted) == 0:
        return 0.0
    return float(spearmanr(predicted, targets).statistic)


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("roc_auc", _ranked(_roc_auc), "higher"),
        Metric("average_precision", _ranked(_average_precision), "higher"),
        Metric("f1", _decided(_f1, average="macro"), "higher"),
        Metric("balanced_accuracy", _decided(_balanced_accuracy), "higher"),
        Metric("calibration_error", _calibration_error, "lower"),
        Metric("rmse", _of_numbers(lambda a, b: float(np.sqrt(np.square(a - b).mean()))), "lower"),
        Metric("mae", _of_numbers(lambda a, b: float(np.abs(a - b).mean())), "lower"),
        Metric("r2", _of_numbers(_r2), "higher"),
        Metric("rank_correlation", _of_numbers(_rank_correlation), "higher"),
    )
}
"""The metrics that have a name."""
