"""Examples that clients hold out: they train on the rest and evaluate models on these."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, SupportsFloat

import numpy as np
import torch

from fedhv.problem.clients import Clients
from fedhv.problem.random import Purpose, stream
from fedhv.support.errors import InputError

if TYPE_CHECKING:
    from fedhv.problem.problem import Problem


def check_share(share: float, name: str = "validation") -> None:
    """Reject a share that leaves nothing to train on."""
    single = np.ndim(share) == 0
    if not single or not isinstance(share, SupportsFloat) or not 0 <= share < 1:
        # The text may be sent from a node to the server: arrays of examples do not belong into it.
        found = repr(share) if single else type(share).__name__
        raise InputError(f"`{name}` should be in [0, 1), the share of examples that are held out. Found {found}.")


def held_out(indices: np.ndarray, share: float, seed: int, client: int) -> tuple[np.ndarray, np.ndarray]:
    """The examples of one client to train on, and those that it holds out, both in their old order.

    At least one is held out where there are two or more, and at least one is left to train on.
    """
    n = len(indices)
    count = min(max(1, round(share * n)), n - 1) if share else 0
    out = np.zeros(n, dtype=bool)
    out[stream(seed, Purpose.VALIDATION, client=client).permutation(n)[:count]] = True
    return indices[~out], indices[out]


def hold_out(clients: Clients, share: float, seed: int = 0) -> tuple[Clients, Clients]:
    """Every client's examples to train on, and those that it holds out: a function of seed and client alone."""
    check_share(share)
    pairs = [held_out(mine, share, seed, k) for k, mine in enumerate(clients)]
    return Clients.of([train for train, _ in pairs]), Clients.of([out for _, out in pairs])


def with_validation(problem: Problem, share: float, seed: int) -> Problem:
    """A problem whose clients hold out this share of their examples; the same problem for a share of 0."""
    if share == 0:
        return problem
    if problem.validation is not None:
        raise InputError(
            f"The clients of problem '{problem.name}' hold out examples already. Leave out `federation.validation`."
        )
    clients, validation = hold_out(problem.clients, share, seed)
    return replace(problem, clients=clients, validation=validation)


def evaluated_on_validation(problem: Problem) -> Problem:
    """The problem with all held-out examples in the place of the test examples, which nothing then looks at."""
    if problem.validation is None:
        raise InputError(
            f"`evaluation.on = 'validation'` needs held-out examples. The clients of problem '{problem.name}' hold out "
            "none; set `federation.validation`, for example to 0.2."
        )
    return replace(problem, test=problem.train[torch.from_numpy(problem.validation.indices)], validation=None)


def check_validation(problem: str, clients: Clients, validation: Clients, examples: int) -> None:
    """Reject held-out examples that belong to no client or do not exist."""
    if len(validation) != len(clients):
        raise InputError(
            f"Problem '{problem}': `validation` should have one list for each of the {len(clients)} clients. "
            f"Found {len(validation)}."
        )
    if len(validation.indices) == 0:
        raise InputError(f"Problem '{problem}': at least one client should hold out examples. Found none.")
    low, high = int(validation.indices.min()), int(validation.indices.max())
    if low < 0 or high >= examples:
        raise InputError(f"Clients should hold out indices from 0 to {examples - 1}. Found {low} to {high}.")
