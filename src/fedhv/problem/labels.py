r"""The mathematics of missing labels.

Client k holds n_k examples, n_ki of them labelled for task i.

- Its loss of task i is the mean over its labelled examples,
  $F_{ki} = \frac1{n_{ki}} \sum_{j\ \text{labelled}} \ell_{ij}$.
- A minibatch of b of its examples estimates it by $\frac{n_k}{n_{ki}} \cdot \frac1b \sum_{j \in B,\ \text{labelled}}
  \ell_{ij}$. It is normalised by the expected number of labels, not by the number in the minibatch, so that the
  gradient is unbiased. The program computes a mean over the minibatch with zeros for missing labels, and task weights
  $w_i\, n_k / n_{ki}$ (`Holding.scales`).
- If examples of a task have several labels (a multilabel task), an example's loss is the mean over its present labels.

With complete labels this is the ordinary mean, and is computed as such, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedhv.problem.missing import rows
from fedhv.problem.problem import Examples, Problem
from fedhv.problem.tasks import PerExample, Task
from fedhv.support.errors import InputError


@dataclass(frozen=True)
class Holding:
    """The numbers of examples and labels of one client.

    Attributes:
        examples: n_k.
        labels: n_ki for every task; None if every example has every label.
    """

    examples: int
    labels: tuple[int, ...] | None = None

    def of(self, tasks: int) -> tuple[int, ...]:
        """n_ki for every task."""
        return (self.examples,) * tasks if self.labels is None else self.labels

    def bare(self) -> Holding:
        """The same without counts of labels: a task has as many as there are examples, or none."""
        return replace(
            self, labels=None if self.labels is None else tuple(self.examples * (n > 0) for n in self.labels)
        )

    @cached_property
    def scales(self) -> Tensor | None:
        """n_k/n_ki for every task, 0 if the client has no label of it; None if all labels are present."""
        if self.labels is None:
            return None
        return torch.tensor([self.examples / n if n else 0.0 for n in self.labels])


def holding(problem: Problem, k: int) -> Holding:
    """The numbers of examples and labels of client k of a problem."""
    mine = problem.clients[k]
    if problem.train.labelled is None:
        return Holding(len(mine))
    return Holding(len(mine), labels_at(problem, mine))


def labels_at(problem: Problem, index: np.ndarray) -> tuple[int, ...]:
    """The number of labelled examples among these training examples, for every task."""
    masks = problem.train.labelled
    if masks is None:
        return (len(index),) * len(problem.tasks)
    where = torch.from_numpy(np.asarray(index))
    return tuple(len(index) if mask is None else int(rows(mask[where]).sum()) for mask in masks)


def example_losses(tasks: tuple[Task, ...], outputs: list[Tensor], batch: Examples) -> list[Tensor]:
    """Every task's losses of n examples, in the units of their `scale`; 0 for a missing label."""
    rows = _per_example(tasks, outputs, batch, [(task.loss, task.entry_loss) for task in tasks])
    return [row if task.scale is None else row / _number(task) for task, row in zip(tasks, rows, strict=True)]


def _number(task: Task) -> float:
    if isinstance(task.scale, str) or task.scale is None:
        raise InputError(
            f"Task '{task.name}': `scale = 'initial'` is measured on the examples of all clients. Give its number "
            "where these are elsewhere."
        )
    return task.scale


def example_scores(tasks: tuple[Task, ...], outputs: list[Tensor], batch: Examples) -> list[Tensor]:
    """Every task's scores of n examples; 0 for a missing label."""
    return _per_example(tasks, outputs, batch, [(task.score, task.entry_score) for task in tasks])


def label_counts(tasks: tuple[Task, ...], batch: Examples) -> Tensor:
    """The number of labelled examples, for every task, in double precision."""
    masks = batch.labelled or (None,) * len(tasks)
    first = batch.targets[0]
    counts = [torch.tensor(float(len(batch))) if mask is None else rows(mask).sum() for mask in masks]
    return torch.stack([each.to(first.device, torch.float64) for each in counts])


def _per_example(
    tasks: tuple[Task, ...],
    outputs: list[Tensor],
    batch: Examples,
    functions: list[tuple[PerExample, PerExample | None]],
) -> list[Tensor]:
    masks = batch.labelled or (None,) * len(tasks)
    found = []
    for output, target, mask, (whole, entries) in zip(outputs, batch.targets, masks, functions, strict=True):
        if mask is None:
            found.append(whole(output, target))
        elif mask.ndim == 1 or entries is None:
            values = whole(output, target)
            found.append(torch.where(rows(mask), values, torch.zeros_like(values)))
        else:
            there = mask.flatten(1)
            values = torch.where(there, entries(output, target).flatten(1), torch.zeros(()).to(output))
            found.append(values.sum(dim=1) / there.sum(dim=1).clamp(min=1))
    return found
