"""The clients of one round, and the order in which they see their examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from fedhv.problem.counter import DrawKey
from fedhv.problem.random import Purpose, stream, torch_seed
from fedhv.protocol.local.training import LocalTraining
from fedhv.support.errors import InputError

ReportBudget = int | Literal["all"]
"""B_rep: a number of minibatches, or "all" for the client's whole dataset."""

Select = Literal["uniform", "size"]
"""How a cohort is drawn: every client alike, or in proportion to its examples."""


@dataclass(frozen=True)
class Cohort:
    """The participants S_t of one round, in ascending order, with the round, the seed and the local training.

    `population` is N, the number of clients from which they were drawn.
    """

    clients: Sequence[int]
    round: int
    seed: int
    local: LocalTraining
    population: int = field(default=0, compare=False)
    select: Select = "uniform"

    def __len__(self) -> int:
        return len(self.clients)

    def stream(self, purpose: Purpose, client: int = 0, part: int = 0) -> np.random.Generator:
        """The random stream for one purpose of one client in this round."""
        return stream(self.seed, purpose, self.round, client, part)

    def torch_seed(self, purpose: Purpose, client: int = 0, part: int = 0) -> int:
        """The same for draws inside torch."""
        return torch_seed(self.seed, purpose, self.round, client, part)

    def place(self, client: int, part: int = 0) -> DrawKey:
        """The key of a client's draws in this round, for `fedhv.problem.counter.keys`."""
        return self.seed, self.round, client, part


def sample_cohort(
    seed: int,
    round: int,
    population: int | Sequence[int],
    participants: int,
    local: LocalTraining,
    attempt: int = 0,
    sizes: np.ndarray | None = None,
) -> Cohort:
    """S_t: `participants` of `population` clients, uniformly without replacement. The cost is that of S_t, not of N.

    With `sizes`, how many examples each of them holds, clients are drawn one after the other without replacement, each
    time with probabilities in proportion to the sizes of those that are left; that costs a look at every size.

    The population is how many clients there are, or, where they come and go, those who are there in ascending order;
    then all of them take part if there are fewer than `participants`. A round that is repeated, since too few
    answered, has another cohort at every attempt.
    """
    if not isinstance(population, int):
        count = len(population)
        places = sample_cohort(seed, round, count, min(participants, count), local, attempt, sizes)
        return replace(places, clients=[population[place] for place in places.clients])
    if not 1 <= participants <= population:
        raise InputError(
            f"Participants M should be between 1 and the number of clients N = {population}. Found M = {participants}."
        )
    draws = stream(seed, Purpose.COHORT, round, part=attempt)
    odds = None if sizes is None else np.asarray(sizes, dtype=np.float64) / np.sum(sizes, dtype=np.float64)
    chosen = draws.choice(population, participants, replace=False, p=odds, shuffle=False)
    select: Select = "uniform" if sizes is None else "size"
    return Cohort(np.sort(chosen).tolist(), round, seed, local, population, select)


def minibatches(rng: np.random.Generator, n: int, local: LocalTraining, steps: int | None = None) -> np.ndarray:
    """The positions, from 0 to n − 1, of the examples in each minibatch, shape (steps, b). In epochs b is at most n."""
    steps = local.steps_of(n) if steps is None else steps
    b = local.minibatch_of(n)
    if local.sampling == "replacement":
        return rng.integers(n, size=(steps, b))
    per_epoch = n // b
    epochs = -(-steps // per_epoch)
    orders = [rng.permutation(n)[: per_epoch * b] for _ in range(epochs)]
    return np.concatenate([np.empty(0, np.int64), *orders]).reshape(-1, b)[:steps]


def report_positions(rng: np.random.Generator, n: int, local: LocalTraining, budget: ReportBudget) -> np.ndarray:
    """A uniform subset without replacement of min(B_rep · b, n) positions."""
    if budget == "all":
        return np.arange(n)
    return rng.permutation(n)[: min(budget * local.batch_size, n)]


def check_report_budget(report: object) -> None:
    """B_rep is "all" or a whole number of minibatches."""
    whole = isinstance(report, int) and not isinstance(report, bool) and report >= 1
    if not whole and report != "all":
        raise InputError(f"`report` should be 'all' or a number of minibatches from 1. Found `report = {report!r}`.")
