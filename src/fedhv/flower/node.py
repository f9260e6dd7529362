"""The parts of a problem on a node and on the server; no process holds the whole problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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
from fedhv.runs.config import GIVEN, Setting
from fedhv.support.errors import InputError

Arrays = tuple[Any, Sequence[Any]]
"""Inputs, and for every task its targets."""


@dataclass(frozen=True)
class Node:
    """The part of a problem on a node: the model's code, the tasks and the node's examples.

    Attributes:
        model: Makes a fresh model; its forward pass returns one output per task.
        tasks: The objectives, in the order of the outputs; the same on all nodes and on the server.
        examples: Inputs and a list of m target arrays. They never leave the node.
        prepare: As in `fedhv.Benchmark`.
        augment: As in `fedhv.Benchmark`.
        heads: As in `fedhv.Benchmark`.
        norm: As in `fedhv.Benchmark`; the same on all nodes and on the server.
        validation: Held-out examples, for evaluation only: inputs and a list of m target arrays, or the fraction of
            `examples` that the node holds out; 0 for none.
    """

    model: Callable[[], nn.Module]
    tasks: Sequence[Task]
    examples: Arrays = field(repr=False)  # the text of an error is sent to the server
    prepare: Callable[[Tensor], Tensor] | None = None
    augment: Augmentation | None = None
    heads: tuple[str, ...] | None = None
    norm: Norm = "refuse"
    validation: Arrays | float = field(default=0.0, repr=False)

    def problem(self) -> Problem:
        """The problem on this node: all examples belong to it, under any client number."""
        refuse_initial_scale(None, self.tasks)
        train = checked("node", "its", Examples.of(*self.examples), tuple(self.tasks))
        mine, out = np.arange(len(train)), np.empty(0, np.int64)
        if isinstance(self.validation, tuple | list):
            parts = [train, checked("node", "held-out", Examples.of(*self.validation), tuple(self.tasks))]
            train = join("node", self.tasks, parts)
            out = np.arange(len(mine), len(train))
        elif self.validation is not None:
            check_share(self.validation)
            mine, out = held_out(mine, self.validation, seed=0, client=0)
        problem = Problem(
            name="node",
            model=self.model,
            tasks=tuple(self.tasks),
            train=train,
            test=train[:1],  # nodes have no test examples
            prepare=self.prepare,
            augment=self.augment,
            heads=self.heads,
            norm=self.norm,
            clients=_OwnExamples(mine, np.array([0, len(mine)])),
            validation=_OwnExamples(out, np.array([0, len(out)])) if len(out) else None,
        )
        masks = problem.train.labelled or (None,) * len(problem.tasks)
        lacks = [mask is not None and not bool(mask.any()) for mask in masks]
        tasks = (_unlabelled_task(task) if gone else task for task, gone in zip(problem.tasks, lacks, strict=True))
        return replace(problem, tasks=tuple(tasks)) if any(lacks) else problem


def _unlabelled_task(task: Task) -> Task:
    """A task without labels on this node: the shape of its targets is unknown, and its loss is zero."""

    def no_loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return 0 * outputs.flatten(1).sum(dim=1)  # zero, with a gradient of zero

    return replace(task, loss=no_loss, score=no_loss, entry_loss=None, entry_score=None)


class _OwnExamples(Clients):
    """One client's examples under every client number; the number only selects the random draws."""

    complete = False  # other nodes have other clients, and labels of other tasks

    def __getitem__(self, client: int) -> np.ndarray:
        return self.indices


def refuse_for_nodes(setting: Setting, problem: Problem) -> None:
    """Raise an error for keys that change the examples of clients: nodes load their own, without the setting."""
    refuse_initial_scale(setting, problem.tasks)
    if setting.benchmark == GIVEN and setting.federation.validation and problem.validation is None:
        raise InputError(
            "Nodes hold out their own examples: `federation.validation` has no effect on them. Leave it out, and give "
            "`validation` to every Node and `validation=True` to the Server."
        )
    if setting.evaluation.on == "validation" and isinstance(problem.clients, _RemoteClients):
        raise InputError(
            "`evaluation.on = 'validation'` needs the examples that nodes hold out, which the server does not have. "
            "Leave it out; nodes evaluate on them with `Server(…, validation=True)`."
        )
    if setting.federation.missing:
        raise InputError(
            "Nodes have their own labels: `federation.missing` has no effect on them. Leave it out, or hide labels "
            "in the nodes' `load`."
        )


def refuse_initial_scale(setting: Setting | None, tasks: Sequence[Task]) -> None:
    """Raise an error if losses are to be measured from where they begin: no node has the examples of all."""
    if (setting is not None and setting.training.scale == "initial") or any(task.scale == "initial" for task in tasks):
        raise InputError(
            "`scale = 'initial'` is measured on the examples of all clients, which no node has. Give every task its "
            "`scale` as a number, the same on the server and on the nodes."
        )


@dataclass(frozen=True)
class Server:
    """The part of a problem on the server: the model's code, the tasks, the number of nodes, perhaps test examples.

    Attributes:
        model: As on the nodes.
        tasks: As on the nodes.
        test: Inputs and a list of m target arrays for evaluation; None if only the nodes evaluate.
        nodes: The number of partitions. Node k is started with `partition-id=k`, from 0.
        name: The problem's name in tables.
        prepare: As on the nodes.
        heads: As on the nodes.
        missing_labels: Whether nodes may lack labels; then they report their numbers of labels.
        norm: As on the nodes.
        validation: Whether nodes evaluate models on held-out examples; always if there is no `test`.
    """

    model: Callable[[], nn.Module]
    tasks: Sequence[Task]
    test: Arrays | None = field(repr=False)
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
        refuse_initial_scale(None, self.tasks)
        test = None if self.test is None else checked(self.name, "test", Examples.of(*self.test), tuple(self.tasks))
        kind = _RemoteClients if test is not None else _UnknownClients
        clients = kind(np.zeros(self.nodes, dtype=np.int64), np.arange(self.nodes + 1))
        return Problem(
            name=self.name,
            model=self.model,
            tasks=tuple(self.tasks),
            # The server does not train: its clients represent examples on the nodes.
            train=_blank(self.tasks) if test is None else replace(test[:1], labelled=None),
            test=test,
            prepare=self.prepare,
            heads=self.heads,
            missing_labels=self.missing_labels,
            norm=self.norm,
            clients=clients,
            validation=clients if self.validation or test is None else None,
        )


class _RemoteClients(Clients):
    """Clients whose examples are on nodes; a test example stands for them in a trial of the model."""


class _UnknownClients(_RemoteClients):
    """The same without any example, not even for a trial of the model."""

    elsewhere = True


def _blank(tasks: Sequence[Task]) -> Examples:
    """An empty example in place of those of the nodes; it is never used in a computation."""
    targets = [
        torch.full((1, *(task.shape or ())), 1 if task.missing == 0 else 0, dtype=torch.int64 if task.whole else None)
        for task in tasks
    ]
    return Examples.of(torch.zeros(1, 1), [each if each.dtype == torch.int64 else each.float() for each in targets])
