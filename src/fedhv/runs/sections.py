"""The tables of a setting as frozen dataclasses, with checks: federation, training, evaluation, calibration, server."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from fedhv.methods.parts.server import ServerOptimiser
from fedhv.problem.norm_policy import Norm, check_norm
from fedhv.protocol.local import LocalTraining, Schedule
from fedhv.protocol.screening import Screening
from fedhv.support.errors import InputError, unknown

# A setting can be read and shown without PyTorch; other modules are imported where they are used.
if TYPE_CHECKING:
    import numpy as np

    from fedhv.methods import Method
    from fedhv.problem.problem import Benchmark, Clients


@dataclass(frozen=True)
class FederationSettings:
    """The clients and the partition of examples.

    Attributes:
        clients: N; left out where the benchmark brings its clients, as `tox21` and `star` do.
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
        _at_least(1, self, "federation", "participants", *(["clients"] if self.clients is not None else []))
        _at_least(0, self, "federation", "seed")
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
        """The clients' index lists: those that a benchmark brings, or a partition of its examples."""
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
                    f"Benchmark '{benchmark}' brings its clients: `federation.{name}` changes nothing. Leave it out."
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
                raise InputError(f"The key `federation.{name}` is missing: benchmark '{benchmark}' brings no clients.")
        return np.full(clients, given) if isinstance(given, int) else np.asarray(given)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Training:
    """The local training of all methods.

    Attributes:
        rounds: T.
        batch_size: b, the examples of a minibatch.
        local_steps: K, the steps that a client makes in a round.
        momentum: The momentum of SGD.
        sampling: "epochs" (shuffled, an incomplete last minibatch dropped, reshuffled until K steps are done) or
            "replacement" (every minibatch is drawn independently, as in the theory).
        local_epochs: Passes over a client's examples instead of `local_steps`.
        optimiser: The clients' optimiser: "sgd", "adam" or "adamw".
        nesterov: Whether SGD uses Nesterov momentum.
        weight_decay: λ of the clients' optimiser.
        betas: Of Adam.
        epsilon: Of Adam.
        clip: The largest norm of a client's gradient; larger ones are scaled down.
        keep_state: Whether clients keep their optimiser's state from round to round; else it starts afresh.
        schedule: How the clients' learning rate changes over the rounds.
        norm: What becomes of the model's BatchNorm layers: "refuse", "frozen", "local", "average" or "group".
        scale: The unit of the tasks' losses: "none" leaves them as they are; with "initial" each is measured in units
            of its mean at the initial model.
    """

    rounds: int
    batch_size: int
    local_steps: int
    momentum: float = 0.0
    sampling: Literal["epochs", "replacement"] = "epochs"
    local_epochs: int | None = None
    optimiser: Literal["sgd", "adam", "adamw"] = "sgd"
    nesterov: bool = False
    weight_decay: float = 0.0
    betas: tuple[float, ...] = (0.9, 0.999)
    epsilon: float = 1e-8
    clip: float | None = None
    keep_state: bool = False
    schedule: Schedule = field(default_factory=Schedule)
    norm: Norm = "refuse"
    scale: Literal["none", "initial"] = "none"

    def __post_init__(self) -> None:
        check_norm("training.norm", self.norm)
        if self.scale not in ("none", "initial"):
            raise InputError(f"`training.scale` should be 'none' or 'initial'. Found '{self.scale}'.")
        _at_least(1, self, "training", "rounds", "batch_size", "local_steps")
        if not 0 <= self.momentum < 1:
            raise InputError(f"`training.momentum` should be in [0, 1). Found {self.momentum}.")
        self.local(0.1)  # invalid values raise an error here, not when a run starts

    def local(self, learning_rate: float) -> LocalTraining:
        """The local training with this learning rate."""
        return LocalTraining(
            steps=self.local_steps,
            batch_size=self.batch_size,
            learning_rate=learning_rate,
            momentum=self.momentum,
            sampling=self.sampling,
            epochs=self.local_epochs,
            optimiser=self.optimiser,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
            betas=self.betas,
            epsilon=self.epsilon,
            clip=self.clip,
            keep_state=self.keep_state,
        )


@dataclass(frozen=True)
class Evaluating:
    """The evaluation of models.

    Attributes:
        every: The number of rounds between evaluations; the last round is always evaluated. 0 evaluates only it.
        reference: r_eval of the evaluation hypervolume.
        explosion: The run stops if a test loss exceeds this multiple of the first evaluation's largest; inf: never.
        on: "test" examples, or all examples that clients hold out for "validation" (`federation.validation`). With the
            latter the test examples are not looked at.
        keep: Which model is kept and tested: that of the "last" round, or the "best" on the examples that clients hold
            out (`federation.validation`), by the tasks' main metrics.
        patience: The run stops after this many evaluations without a better model on these examples; 0: never.
    """

    every: int = 1
    reference: float = 3.0
    explosion: float = 1000.0
    on: Literal["test", "validation"] = "test"
    keep: Literal["last", "best"] = "last"
    patience: int = 0

    @property
    def selects(self) -> bool:
        """Whether evaluations choose the model or the last round."""
        return self.keep == "best" or self.patience > 0

    def __post_init__(self) -> None:
        _at_least(0, self, "evaluation", "every", "patience")
        if self.keep not in ("last", "best"):
            raise InputError(f"`evaluation.keep` should be 'last' or 'best'. Found '{self.keep}'.")
        if self.selects and self.every == 0:
            asks = "keep = 'best'" if self.keep == "best" else f"patience = {self.patience}"
            raise InputError(
                f"`evaluation.every` should be at least 1 with `evaluation.{asks}`: models are compared by evaluations."
                " Found 0."
            )
        if not 0 < self.reference < math.inf:
            raise InputError(f"`evaluation.reference` should be positive. Found {self.reference}.")
        if not self.explosion > 1:
            raise InputError(f"`evaluation.explosion` should be more than 1. Found {self.explosion}.")
        if self.on not in ("test", "validation"):
            raise InputError(f"`evaluation.on` should be 'test' or 'validation'. Found '{self.on}'.")


@dataclass(frozen=True)
class Calibration:
    """How FedHV's reference is found: uniform-weight rounds, componentwise maximum, plus a margin.

    Attributes:
        rounds: The rounds of every calibration run.
        margin: δ_r, which is added to the maximum.
        seeds: The seeds of the calibration runs.
        setting: The setting of the calibration runs, if several settings share a reference.
    """

    rounds: int = 20
    margin: float = 0.15
    seeds: tuple[int, ...] = (0,)
    setting: str | None = None

    def __post_init__(self) -> None:
        _at_least(1, self, "calibration", "rounds")
        if not 0 < self.margin < math.inf:
            raise InputError(f"`calibration.margin` should be positive. Found {self.margin}.")
        if not self.seeds or min(self.seeds) < 0:
            raise InputError(f"`calibration.seeds` should be whole numbers from 0. Found {list(self.seeds)}.")


HARDENED_SERVER = {"outlier": 10.0, "report_outlier": 10.0}
HARDENED_METHOD = {"aggregate": "trimmed", "trim": 0.2, "weight_cap": 0.8}
"""What the profile "hardened" sets of the server and of methods that use reports."""


@dataclass(frozen=True)
class ServerSettings(Screening):
    """The server's bounds on replies, the number of replies that it needs, and its optimiser.

    Attributes:
        optimiser: The server's optimiser.
        profile: "hardened" bounds what broken and hostile clients can do, wherever a bound is not set by hand: outliers
            among updates and reported losses are refused, reports are combined by their trimmed mean, and no task
            weight is larger than 0.8.
    """

    optimiser: ServerOptimiser = field(default_factory=ServerOptimiser)
    profile: Literal["standard", "hardened"] = "standard"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.profile not in ("standard", "hardened"):
            raise InputError(f"`server.profile` should be 'standard' or 'hardened'. Found '{self.profile}'.")
        if self.profile == "hardened":
            for name, value in HARDENED_SERVER.items():
                if getattr(self, name) is None:
                    object.__setattr__(self, name, value)

    def hardened(self, method: Method) -> Method:
        """The method with the profile's bounds on reports and weights; as it is in the standard profile."""
        if self.profile == "standard" or not {f.name for f in dataclasses.fields(method)} >= set(HARDENED_METHOD):
            return method
        defaults = {f.name: f.default for f in dataclasses.fields(method)}
        mine: dict[str, Any] = {n: v for n, v in HARDENED_METHOD.items() if getattr(method, n) == defaults[n]}
        return dataclasses.replace(method, **mine)


@dataclass(frozen=True)
class Recording:
    """What histories have beside what they always have.

    Attributes:
        cohort: Who was asked in every round, whose answers were taken, and the norms of their updates. If it is not
            set, cohorts of at most 64 clients are recorded. A federation over Flower always records it.
        checkpoints: Keep a checkpoint every this many rounds, so that a run can go back to it (`--resume-from`); 0
            keeps the last two alone. If it is not set, the newest three of those at every tenth of the rounds are kept.
    """

    cohort: bool | None = None
    checkpoints: int | None = None

    def __post_init__(self) -> None:
        if self.checkpoints is not None:
            _at_least(0, self, "record", "checkpoints")


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


def _at_least(least: int, owner: Any, section: str, *names: str) -> None:
    for name in names:
        if getattr(owner, name) < least:
            raise InputError(f"`{section}.{name}` should be at least {least}. Found {getattr(owner, name)}.")
