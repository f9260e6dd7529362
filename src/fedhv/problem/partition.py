"""The partition of examples among clients: Dirichlet over label strata, or IID, with exact quotas.

For each client, proportions over the strata are drawn from Dirichlet(α). The client takes ⌊share × quota⌋ examples from
the shuffled pool of each stratum. A pool that runs out is refilled with its used examples and reshuffled. The rest of
the quota is drawn at random from the unused examples of all strata. The procedure always ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedhv.problem.clients import Clients
from fedhv.problem.random import Purpose, stream
from fedhv.support.errors import InputError


def partition(
    sizes: Sequence[int] | np.ndarray,
    examples: int,
    columns: Sequence[np.ndarray] = (),
    alpha: float | None = None,
    seed: int = 10,
) -> Clients:
    """Divide examples among clients.

    Args:
        sizes: The number of examples of each client. A client never gets an example twice. If the sum exceeds the
            number of examples, clients share examples.
        examples: The number of examples.
        columns: Label columns; every distinct combination of their values is one stratum. None means IID.
        alpha: The Dirichlet concentration; smaller is more skewed. Needed with `columns`.
        seed: The same seed gives the same partition.

    Examples:
        >>> clients = fedhv.partition(sizes=[3, 5], examples=10, columns=[np.arange(10) % 2], alpha=0.3)
        >>> [len(held) for held in clients]
        [3, 5]
    """
    quotas = np.asarray(sizes, dtype=np.int64)
    if quotas.ndim != 1 or len(quotas) == 0 or quotas.min() < 1 or quotas.max() > examples:
        found = "none" if quotas.size == 0 else f"{quotas.min()} to {quotas.max()}"
        raise InputError(f"Clients should hold between 1 and {examples} examples each. Found {found}.")
    if len(columns) and (alpha is None or not (0 < alpha < np.inf)):
        raise InputError(f"Parameter `alpha` should be positive. Found `alpha = {alpha}`.")
    rng = stream(seed, Purpose.PARTITION)
    pools = _Pools(_strata(columns, examples), rng)
    held = np.empty(int(quotas.sum()), dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(quotas)])
    k = 0
    while k < len(quotas):
        if len(pools.sizes) == 1:
            # One stratum: all draws are from the unused examples, for as many clients at once as they suffice for.
            served = int(np.searchsorted(offsets, offsets[k] + pools.unused(), side="right")) - 1
            if served > k:
                held[offsets[k] : offsets[served]] = pools.take(offsets[served : served + 1] - offsets[k])
                k = served
                continue
            wanted = np.zeros(1, dtype=np.int64)
        else:
            assert alpha is not None
            wanted = np.floor(rng.dirichlet(np.full(len(pools.sizes), alpha)) * quotas[k]).astype(np.int64)
        first = pools.take(wanted)
        rest = pools.take_any(int(quotas[k]) - len(first), first)
        held[offsets[k] : offsets[k + 1]] = np.concatenate([first, rest])
        k += 1
    return Clients(held, offsets)


def _strata(columns: Sequence[np.ndarray], examples: int) -> np.ndarray:
    """The stratum number of every example."""
    strata = np.zeros(examples, dtype=np.int64)
    for column in columns:
        if len(column) != examples:
            raise InputError(f"A label column should have {examples} entries. Found {len(column)}.")
        # Combining one column at a time keeps the numbers small for any number of columns.
        _, codes = np.unique(column, return_inverse=True)
        _, strata = np.unique(strata * (int(codes.max()) + 1) + codes, return_inverse=True)
    return strata


class _Pools:
    """Shuffled examples of every stratum; the first `head` of each are used, the others are not."""

    def __init__(self, strata: np.ndarray, rng: np.random.Generator) -> None:
        self.rng = rng
        shuffled = rng.permutation(len(strata))
        self.order = shuffled[np.argsort(strata[shuffled], kind="stable")]
        self.sizes = np.bincount(strata)
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        self.head = np.zeros(len(self.sizes), dtype=np.int64)

    def unused(self) -> int:
        """The number of unused examples."""
        return int((self.sizes - self.head).sum())

    def take(self, wanted: np.ndarray) -> np.ndarray:
        """The given number of examples of every stratum (at most all of it); pools that run out are refilled."""
        wanted = np.minimum(wanted, self.sizes)
        for s in np.flatnonzero(self.head + wanted > self.sizes):
            self.rng.shuffle(self.order[self.starts[s] : self.starts[s] + self.sizes[s]])
            self.head[s] = 0
        # The positions taken from all strata at once: wanted[s] consecutive numbers from each pool's head.
        begins = np.repeat(self.starts + self.head - (np.cumsum(wanted) - wanted), wanted)
        self.head += wanted
        return self.order[begins + np.arange(int(wanted.sum()))]

    def take_any(self, count: int, holding: np.ndarray) -> np.ndarray:
        """Any `count` unused examples; when none are left, all but `holding` become unused again."""
        unused = self.sizes - self.head
        left = int(unused.sum())
        if count > left:
            last = self.take(unused)
            self._refill(np.concatenate([holding, last]))
            return np.concatenate([last, self.take_any(count - left, holding)])
        # Pools are shuffled, so a uniform draw is a draw of the number from each pool.
        return self.take(self.rng.multivariate_hypergeometric(unused, count, method="marginals"))

    def _refill(self, holding: np.ndarray) -> None:
        held = np.zeros(len(self.order), dtype=bool)
        held[holding] = True
        for s, (start, size) in enumerate(zip(self.starts, self.sizes, strict=True)):
            pool = self.rng.permutation(self.order[start : start + size])
            self.order[start : start + size] = pool[np.argsort(~held[pool], kind="stable")]
            self.head[s] = int(held[pool].sum())
