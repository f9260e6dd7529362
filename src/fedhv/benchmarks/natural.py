"""What benchmarks with natural clients share: every client's examples are divided into training, validation and test.

Validation and test examples are a share of every client, put together. A natural client has no say in what the others
hold: shares are drawn per client, by a generator of its own, so that they stay when another client changes.
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
"""Of a client's examples: for validation, for the test."""

Part = Literal["validation", "test"]


@dataclass(frozen=True)
class Split:
    """Places of examples.

    Attributes:
        train: For every client.
        validation: Of all clients.
        test: Of all clients.
    """

    train: list[np.ndarray]
    validation: np.ndarray
    test: np.ndarray


def split(clients: Sequence[np.ndarray]) -> Split:
    """Every client's examples in three parts; a client keeps at least one for training."""
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
        name: What tables call it.
        model: Makes a fresh model.
        tasks: The objectives.
        inputs: Of all examples.
        targets: For every task, NaN where a label is missing.
        clients: Which examples every client has; clients whose training examples have no label are left out.
        evaluate_on: The part that evaluations use. Rates are chosen on "validation"; "test" is looked at afterwards.
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
