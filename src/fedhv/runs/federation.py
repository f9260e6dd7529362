"""A setting's `[federation]`: the clients, and the partition of examples among them."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fedhv.support.errors import InputError, unknown
from fedhv.support.numbers import check_at_least

# A setting can be read and shown without PyTorch; other modules are imported where they are used.
if TYPE_CHECKING:
    import numpy as np

    from fedhv.problem.problem import Benchmark, Clients


@dataclass(frozen=True)
class FederationSettings:
    """The clients and the partition of examples.

    Attributes:
        clients: N; left out where the benchmark defines its clients, as `tox21` and `star` do.
        participants: M of them take part in each round.
        samples_per_client: One number for all, or a list with one number for every client; left out with `clients`.
        partition: "dirichlet" over label strata, or "iid".
        alpha: The Dirichlet concentration.
        strata: "all" labels together, the "first" label alone, or a list of label columns by name.
        seed: Of the partition, apart from the seeds of runs.
        average: How much each client counts in means of updates and reports: all alike ("clients"), by its "examples",
            or by its "labels".
        select: How cohorts are drawn: "uniform", or in proportion to the clients' "size".
        missing: The share of training labels that are hidden, for studies of missing labels.
        missing_by: Hide every "label" by itself, or all that a client has of a "task".
        validation: The share of its examples that every client holds out and evaluates models on; 0 for none.
    """

    clients: int | None
    participants: int
    samples_per_client: int | tuple[int, ...] | None
    partition: Literal["dirichlet", "iid"] = "dirichlet"
    alpha: float = 0.3
    strata: Literal["all", "first"] | tuple[str, ...] = "all"
    seed: int = 10
    average: Literal["clients", "examples", "labels"] = "clients"
    select: Literal["uniform", "size"] = "uniform"
    missing: float = 0.0
    missing_by: Literal["label", "task"] = "label"
    validation: float = 0.0

    def __post_init__(self) -> None:
        check_at_least(1, self, "federation", "participants", *(["clients"] if self.clients is not None else []))
        check_at_least(0, self, "federation", "seed")
        if self.clients is not None and self.participants > self.clients:
            raise InputError(
                f"`federation.participants` (M) should be at most `federation.clients` (N = {self.clients}). "
                f"Found M = {self.participants}."
            )
        if isinstance(self.samples_per_client, tuple) and len(self.samples_per_client) != self.clients:
            raise InputError(
                f"`federation.samples_per_client` should be one number, or {self.clients} of them. "
                f"Found {len(self.samples_per_client)}."
            )
        if self.strata == () and self.partition == "dirichlet":
            raise InputError(
                "`federation.strata` should name at least one label column for a Dirichlet partition. Found none; "
                'use `partition = "iid"` for one without labels.'
            )
        if not 0 < self.alpha < math.inf:
            raise InputError(f"`federation.alpha` should be positive. Found {self.alpha}.")
        if self.average not in ("clients", "examples", "labels"):
            raise InputError(
                f"`federation.average` should be 'clients', 'examples' or 'labels'. Found '{self.average}'."
            )
        if self.select not in ("uniform", "size"):
            raise InputError(f"`federation.select` should be 'uniform' or 'size'. Found '{self.select}'.")
        if not 0 <= self.missing < 1:
            raise InputError(f"`federation.missing` should be in [0, 1). Found {self.missing}.")
        if not 0 <= self.validation < 1:
            raise InputError(f"`federation.validation` should be in [0, 1). Found {self.validation}.")
        if self.missing_by not in ("label", "task"):
            raise InputError(f"`federation.missing_by` should be 'label' or 'task'. Found '{self.missing_by}'.")

    def divide(self, benchmark: Benchmark) -> Clients:
        """The clients' index lists: those that a benchmark defines, or a partition of its examples."""
        from fedhv.problem.problem import Problem

        if isinstance(benchmark, Problem):
            self._refuse_ignored(benchmark.name)
            return benchmark.clients
        return self._partition(benchmark)

    def _refuse_ignored(self, benchmark: str) -> None:
        """Keys that say how to divide examples which are divided already."""
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        for name in ("clients", "samples_per_client", "partition", "alpha", "strata"):
            default = None if defaults[name] is dataclasses.MISSING else defaults[name]
            if getattr(self, name) != default:
                raise InputError(
                    f"Benchmark '{benchmark}' defines its clients: `federation.{name}` has no effect. Leave it out."
                )

    def _partition(self, benchmark: Benchmark) -> Clients:
        from fedhv.problem.partition import partition

        sizes = self.sizes(benchmark.name)
        columns = [] if self.partition == "iid" else strata_columns(benchmark, self.strata)
        return partition(sizes, len(benchmark.train), columns, self.alpha, self.seed)

    def sizes(self, benchmark: str) -> np.ndarray:
        """How many examples each client gets."""
        import numpy as np

        clients, given = self.clients, self.samples_per_client
        for name, value in (("clients", clients), ("samples_per_client", given)):
            if value is None:
                raise InputError(
                    f"The key `federation.{name}` is missing: benchmark '{benchmark}' does not define clients."
                )
        return np.full(clients, given) if isinstance(given, int) else np.asarray(given)  # type: ignore[arg-type]


def strata_columns(benchmark: Benchmark, strata: str | tuple[str, ...]) -> list[np.ndarray]:
    """The label columns whose combinations are the strata of a partition."""
    columns = dict(benchmark.strata)
    if not columns:
        for i, task in enumerate(benchmark.tasks):
            targets = benchmark.train.labels(i)
            if targets.ndim == 1:
                columns[task.name] = targets
            else:
                columns |= {f"{task.name}.{j}": targets[:, j] for j in range(targets.shape[1])}
    if strata == "all":
        return list(columns.values())
    if strata == "first":
        return list(columns.values())[:1]
    for name in strata:
        if name not in columns:
            raise unknown("label column in `federation.strata`", name, columns)
    return [columns[name] for name in strata]
