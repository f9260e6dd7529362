"""Common parts of benchmarks with natural clients: the division into training, validation and test examples.

A fraction of every client's examples is held out for validation and another for the test; they are pooled over clients.
Each client has its own random generator, so its held-out examples do not depend on the other clients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import nn

from fedhv.problem.problem import Clients, Examples, Problem
from fedhv.problem.random import Purpose, stream
from fedhv.problem.tasks import Task

SHARES = (0.1, 0.2)
"""The fractions of a client's examples for validation and for the test."""

Part = Literal["validation", "test"]


@dataclass(frozen=True)
class Split:
    """Positions of examples.

    Attributes:
        train: The training examples of every client.
        validation: The validation examples of all clients.
        test: The test examples of all clients.
    """

    train: list[np.ndarray]
    validation: np.ndarray
    test: np.ndarray


def split(clients: Sequence[np.ndarray]) -> Split:
    """Divide every client's examples into three parts; every client has at least one for training."""
    train, validation, test = [], [], []
    for k, mine in enumerate(clients):
        shuffled = stream(0, Purpose.BENCHMARK, client=k).permutation(mine)
        first, second = (int(share * len(mine)) for share in SHARES)
        validation.append(shuffled[:first])
        test.append(shuffled[first : first + second])
        train.append(np.sort(shuffled[first + second :]))
    return Split(train, np.sort(np.concatenate(validation)), np.sort(np.concatenate(test)))


def natural_problem(
    name: str,
    model: Callable[[], nn.Module],
    tasks: Sequence[Task],
    inputs: np.ndarray,
    targets: Sequence[np.ndarray],
    clients: Sequence[np.ndarray],
    evaluate_on: Part,
    **options: Any,
) -> Problem:
    """The divided problem.

    Args:
        name: Its name in tables.
        model: Makes a fresh model.
        tasks: The objectives.
        inputs: The inputs of all examples.
        targets: The targets of every task, NaN for a missing label.
        clients: The examples of every client. Clients whose training examples have no label are left out.
        evaluate_on: The examples for evaluations: "validation" for the choice of learning rates, then "test".
        options: As in `Problem`.
    """
    parts = split(clients)
    known = ~np.isnan(np.stack(targets)).all(axis=0)
    held = [each for each in parts.train if known[each].any()]
    place = np.concatenate(held)
    where = getattr(parts, evaluate_on)
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in held])]).astype(np.int64)
    return Problem(
        name=name,
        model=model,
        tasks=tuple(tasks),
        train=Examples.of(inputs[place], [each[place] for each in targets]),
        test=Examples.of(inputs[where], [each[where] for each in targets]),
        clients=Clients(np.arange(len(place), dtype=np.int64), offsets),
        **options,
    )
