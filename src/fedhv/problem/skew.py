r"""Label skew: how much the labels of a task differ from client to client, beside what a random draw would give.

The skew of a client is the total variation distance $\frac12\sum_c |\hat p_k(c) - p(c)|$ between its labels and those
of all clients together; the skew of a task is the mean over clients. Few examples differ by chance, so a number alone
says little: `random` is the expected skew if every client had drawn its labels at random from all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fedhv.problem.problem import Problem

BINS = 10
"""Numbers that are not classes are counted in this many bins with equal shares of the examples."""


@dataclass(frozen=True)
class Skew:
    """A task's label skew: as found, and as expected in a random draw of the same sizes; four decimals."""

    found: float
    random: float


def label_skew(problem: Problem) -> tuple[Skew, ...]:
    """The label skew of every task, over the clients that have labels of it; empty if the examples are elsewhere."""
    if problem.clients.elsewhere or not problem.clients.complete:
        return ()
    return tuple(_of_task(problem, i) for i in range(len(problem.tasks)))


def _of_task(problem: Problem, i: int) -> Skew:
    """The mean over the label columns of a task; an entry of its targets that nobody has a label of does not count."""
    clients, examples = problem.clients, problem.train
    owner = np.repeat(np.arange(len(clients)), clients.sizes)
    targets = examples.targets[i].cpu().numpy()
    mask = None if examples.labelled is None else examples.labelled[i]
    known = np.ones(targets.shape, bool) if mask is None else mask.cpu().numpy()
    targets, known = targets.reshape(len(targets), -1), known.reshape(len(known), -1)
    columns = []
    for j in range(targets.shape[1]):
        held = known[clients.indices, j]
        if held.any():
            columns.append(_of_column(_classes(targets[clients.indices, j][held]), owner[held], len(clients)))
    found, random = np.mean(columns, axis=0)
    return Skew(round(float(found), 4), round(float(random), 4))


def _classes(labels: np.ndarray) -> np.ndarray:
    """Class numbers from 0 on; real numbers by the bin that they are in."""
    values, codes = np.unique(labels, return_inverse=True)
    if np.issubdtype(labels.dtype, np.floating) and len(values) > BINS:
        edges = np.quantile(labels, np.linspace(0, 1, BINS + 1)[1:-1])
        return np.searchsorted(edges, labels, side="right")
    return codes


def _of_column(codes: np.ndarray, owner: np.ndarray, clients: int) -> tuple[float, float]:
    """The skew of one column of labels, found and expected."""
    n = np.bincount(owner, minlength=clients)
    with_labels = n > 0
    n, total = n[with_labels], len(codes)
    found = random = 0.0
    for c in range(int(codes.max()) + 1):
        count = np.bincount(owner[codes == c], minlength=clients)[with_labels]
        p = count.sum() / total
        found += float(np.abs(count / n - p).mean())
        random += float((_mean_deviation(n, p) / n).mean())
    return found / 2, random / 2


def _mean_deviation(n: np.ndarray, p: float) -> np.ndarray:
    r"""$E|X - np|$ of a binomial X, by de Moivre's formula $2 v \binom{n}{v} p^v (1-p)^{n-v+1}$, $v = ⌊np⌋ + 1$."""
    if p in (0, 1):
        return np.zeros(len(n))
    sizes, place = np.unique(n, return_inverse=True)
    return np.array([_mean_deviation_of(int(size), p) for size in sizes])[place]


def _mean_deviation_of(n: int, p: float) -> float:
    v = math.floor(n * p) + 1
    log_binomial = math.lgamma(n + 1) - math.lgamma(v + 1) - math.lgamma(n - v + 1)
    return 2 * v * math.exp(log_binomial + v * math.log(p) + (n - v + 1) * math.log1p(-p))
