"""The parts of a problem on a node and on the server; no process holds the whole problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedhv.problem.checking import checked
from fedhv.problem.holdout import check_share, held_out
from fedhv.problem.joining import join
from fedhv.problem.norm_policy import Norm
from fedhv.problem.problem import Augmentation, Clients, Examples, Problem
from fedhv.problem.tasks import Task
from fedhv.runs.config import Setting
from fedhv.support.errors import InputError

Arrays = tuple[Any, Sequence[Any]]
"""Inputs, and for every task its targets."""


@dataclass(frozen=True)
class Node:
    """Everything a node brings to the federation: its model's code, the tasks and its own examples.

    Attributes:
        model: Makes a fresh model; its forward pass returns one output per task.
        tasks: The objectives, in the order of the outputs; the same on all nodes and on the server.
        examples: Inputs and a list of m target arrays. They never leave the node.
        prepare: As in `fedhv.Benchmark`.
        augment: As in `fedhv.Benchmark`.
        heads: As in `fedhv.Benchmark`.
        norm: As in `fedhv.Benchmark`; the same on all nodes and on the server.
        validation: What the node evaluates models on and does not train on: inputs and a list of m target arrays, or
            the share of `examples` that it holds out; 0 for none.
    """

    model: Callable[[], nn.Module]
    tasks: Sequence[Task]
    examples: Arrays
    prepare: Callable[[Tensor], Tensor] | None = None
    augment: Augmentation | None = None
    heads: tuple[str, ...] | None = None
    norm: Norm = "refuse"
    validation: Arrays | float = 0.0

    def problem(self) -> Problem:
        """The problem as this node sees it: whichever client it is, all examples are its own."""
        train = checked("node", "its", Examples.of(*self.examples), tuple(self.tasks))
        mine, out = np.arange(len(train)), np.empty(0, np.int64)
        if isinstance(self.validation, tuple | list):
            parts = [train, checked("node", "held-out", Examples.of(*self.validation), tuple(self.tasks))]
            train = join("node", self.tasks, parts)
            out = np.arange(len(mine), len(train))
        elif self.validation:
            check_share(self.validation)
            mine, out = held_out(mine, self.validation, seed=0, client=0)
        problem = Problem(
            name="node",
            model=self.model,
            tasks=tuple(self.tasks),
            train=train,
            test=train[:1],  # a node tests nothing
            prepare=self.prepare,
            augment=self.augment,
            heads=self.heads,
            norm=self.norm,
            clients=_AllMine(mine, np.array([0, len(mine)])),
            validation=_AllMine(out, np.array([0, len(out)])) if len(out) else None,
        )
        masks = problem.train.labelled or (None,) * len(problem.tasks)
        lacks = [mask is not None and not bool(mask.any()) for mask in masks]
        tasks = (_unknown(task) if gone else task for task, gone in zip(problem.tasks, lacks, strict=True))
        return replace(problem, tasks=tuple(tasks)) if any(lacks) else problem


def _unknown(task: Task) -> Task:
    """A task of which a node has no label: nothing says which shape its targets have elsewhere, and no loss counts."""

    def nothing(outputs: Tensor, targets: Tensor) -> Tensor:
        return 0 * outputs.flatten(1).sum(dim=1)  # has a gradient, which is zero

    return replace(task, loss=nothing, score=nothing, entry_loss=None, entry_score=None)


class _AllMine(Clients):
    """One client's examples under any client's number: the number then only says which random draws are its own."""

    complete = False  # other nodes have other clients, and labels of other tasks

    def __getitem__(self, client: int) -> np.ndarray:
        return self.indices


def refuse_hidden_labels(setting: Setting) -> None:
    """Labels are hidden where the examples are: on nodes that load them by themselves a setting hides nothing."""
    if setting.federation.missing:
        raise InputError(
            "Nodes bring their own labels: `federation.missing` changes nothing there. Leave it out, or hide labels "
            "in the nodes' `load`."
        )


@dataclass(frozen=True)
class Server:
    """Everything the server has: the model's code, the tasks, perhaps test examples, and how many nodes there are.

    Attributes:
        model: As on the nodes.
        tasks: As on the nodes.
        test: Inputs and a list of m target arrays for evaluation; None where the nodes evaluate alone.
        nodes: How many partitions there are; node k is started with `partition-id=k`, from 0.
        name: What tables call the problem.
        prepare: As on the nodes.
        heads: As on the nodes.
        missing_labels: Whether nodes may lack labels; they then say how many they have.
        norm: As on the nodes.
        validation: Whether nodes evaluate models on examples that they hold out; without `test` they do.
    """

    model: Callable[[], nn.Module]
    tasks: Sequence[Task]
    test: Arrays | None
    nodes: int
    name: str = "custom"
    prepare: Callable[[Tensor], Tensor] | None = None
    heads: tuple[str, ...] | None = None
    missing_labels: bool = False
    norm: Norm = "refuse"
    validation: bool = False

    def problem(self) -> Problem:
        """The problem on the server: the number of clients, without their examples."""
        if self.nodes < 1:
            raise InputError(f"`nodes` should be at least 1. Found {self.nodes}.")
        test = None if self.test is None else checked(self.name, "test", Examples.of(*self.test), tuple(self.tasks))
        kind = Clients if test is not None else _Elsewhere
        clients = kind(np.zeros(self.nodes, dtype=np.int64), np.arange(self.nodes + 1))
        return Problem(
            name=self.name,
            model=self.model,
            tasks=tuple(self.tasks),
            # The server trains nothing: every client stands for examples that are elsewhere.
            train=_blank(self.tasks) if test is None else replace(test[:1], labelled=None),
            test=test,
            prepare=self.prepare,
            heads=self.heads,
            missing_labels=self.missing_labels,
            norm=self.norm,
            clients=clients,
            validation=clients if self.validation or test is None else None,
        )


class _Elsewhere(Clients):
    """Clients of which nothing is here, not even an example that the model could be tried on."""

    elsewhere = True


def _blank(tasks: Sequence[Task]) -> Examples:
    """An example that stands for those of the nodes; nobody computes with it."""
    targets = [
        torch.full((1, *(task.shape or ())), 1 if task.missing == 0 else 0, dtype=torch.int64 if task.whole else None)
        for task in tasks
    ]
    return Examples.of(torch.zeros(1, 1), [each if each.dtype == torch.int64 else each.float() for each in targets])
