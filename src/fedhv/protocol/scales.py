"""The scales of losses: where each task's loss begins, and a warning where these differ several-fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from fedhv.problem.initial import initial_model
from fedhv.problem.labels import label_counts
from fedhv.problem.problem import Problem
from fedhv.problem.random import Purpose, torch_seed
from fedhv.protocol.client import CHUNK, Client
from fedhv.support.errors import InputError

MEASURED, GLANCED = 2048, 64
"""The number of training examples for a scale, and for the warning."""
FEW = 8
"""With fewer training examples nothing is compared; a server of nodes has one at most."""
SEVERAL = 5.0
"""Losses that differ by this factor give a warning."""


def initial_losses(problem: Problem, examples: int = MEASURED) -> list[float]:
    """Every task's mean loss at the initial model of seed 0, on examples that are spread evenly over the clients.

    NaN for a task that none of these examples has a label of.
    """
    bare = unscaled(problem)
    client = Client(bare)
    theta = initial_model(problem.model, torch_seed(0, Purpose.MODEL), problem.norm)
    held = problem.clients.indices
    index = held[np.linspace(0, len(held) - 1, min(len(held), examples)).astype(np.int64)]
    sums = torch.zeros(2, len(problem.tasks), dtype=torch.float64)
    with torch.no_grad():
        for start in range(0, len(index), CHUNK):
            batch = client.ready(client.train_examples[torch.from_numpy(index[start : start + CHUNK])])
            sums[0] += client.example_losses(theta, batch, training=False).double().sum(dim=1)
            sums[1] += label_counts(bare.tasks, batch)
    return (sums[0] / sums[1]).tolist()


def unscaled(problem: Problem) -> Problem:
    """The problem with every loss in its own unit."""
    return replace(problem, tasks=tuple(replace(task, scale=None) for task in problem.tasks))


def with_scales(problem: Problem, everywhere: bool) -> Problem:
    """The problem with the number of every scale that is "initial"; with `everywhere` all tasks have that scale.

    A number that a task has keeps its precedence. Three digits are enough for a unit, and the same on all machines.
    """
    if everywhere:
        tasks = tuple(task if task.scale is not None else replace(task, scale="initial") for task in problem.tasks)
        problem = replace(problem, tasks=tasks)
    if not any(task.scale == "initial" for task in problem.tasks):
        return problem
    if problem.clients.elsewhere:
        raise InputError(
            "`scale = 'initial'` is measured on the examples of all clients, which are elsewhere. Give every task its "
            "`scale` as a number."
        )
    found = []
    for task, loss in zip(problem.tasks, initial_losses(problem), strict=True):
        if task.scale == "initial":
            if not 0 < loss < float("inf"):
                raise InputError(
                    f"Task '{task.name}': `scale = 'initial'` needs a positive initial loss. Found {loss:.4g}; give a "
                    "number."
                )
            task = replace(task, scale=float(f"{loss:.3g}"))
        found.append(task)
    return replace(problem, tasks=tuple(found))


def in_units(problem: Problem, units: Sequence[float]) -> Problem:
    """The problem with the units of a run's losses; in its own units if these are empty."""
    if not units:
        return unscaled(problem)
    if len(units) != len(problem.tasks):
        raise InputError(f"The problem should have the run's {len(units)} tasks. Found {len(problem.tasks)}.")
    pairs = zip(problem.tasks, units, strict=True)
    return replace(problem, tasks=tuple(replace(task, scale=float(unit)) for task, unit in pairs))


def loss_units(problem: Problem) -> list[float]:
    """The unit of every task's loss; empty if no task has a scale."""
    scales = [task.scale for task in problem.tasks]
    return [] if all(scale is None for scale in scales) else [1.0 if s is None else float(s) for s in scales]


def uneven(problem: Problem) -> str:
    """One line if the tasks' initial losses differ several-fold; empty otherwise."""
    if len(problem.tasks) < 2 or len(problem.train) < FEW:
        return ""
    losses = [
        loss / (1.0 if task.scale is None else float(task.scale))
        for task, loss in zip(problem.tasks, initial_losses(problem, GLANCED), strict=True)
    ]
    return differ("Initial losses", [task.name for task in problem.tasks], losses)


def differ(what: str, names: list[str], values: list[float]) -> str:
    """One line if positive values differ several-fold; empty otherwise."""
    known = {name: value for name, value in zip(names, values, strict=True) if 0 < value < float("inf")}
    if len(known) < 2 or max(known.values()) < SEVERAL * min(known.values()):
        return ""
    low, high = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    return (
        f"{what} differ {known[high] / known[low]:.3g}-fold ({low} {known[low]:.3g}, {high} {known[high]:.3g}): "
        'weights and steps follow the units of the losses. Measure each loss from where it begins with scale="initial" '
        "(--set training.scale=initial)."
    )
