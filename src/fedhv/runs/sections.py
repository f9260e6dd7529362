"""Tables of a setting as frozen dataclasses, with checks: evaluation, calibration, server, record."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from fedhv.methods.parts.server import ServerOptimiser
from fedhv.protocol.screening import Screening
from fedhv.support.errors import InputError
from fedhv.support.numbers import LARGEST_SEED, check_at_least

if TYPE_CHECKING:  # a setting can be read and shown without PyTorch
    from fedhv.methods import Method


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
        check_at_least(0, self, "evaluation", "every", "patience")
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
        check_at_least(1, self, "calibration", "rounds")
        if not 0 < self.margin < math.inf:
            raise InputError(f"`calibration.margin` should be positive. Found {self.margin}.")
        if not self.seeds or min(self.seeds) < 0 or max(self.seeds) > LARGEST_SEED:
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
            check_at_least(0, self, "record", "checkpoints")
