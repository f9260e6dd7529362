"""The plan of a run: everything that fixes its rounds, apart from problem and method."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fedhv.methods.parts.server import ServerOptimiser
from fedhv.protocol.cohort import Select
from fedhv.protocol.faults import NO_FAULTS, Faults
from fedhv.protocol.local import LocalTraining, Schedule
from fedhv.protocol.screening import Screening
from fedhv.protocol.shares import Average
from fedhv.simulation.validation import MetricName

LISTED = 64
"""Cohorts of at most this size are listed in histories unless the setting says otherwise: a kilobyte a round."""


@dataclass(frozen=True)
class Plan:
    """The configuration of a run, apart from problem and method.

    Attributes:
        rounds: T.
        participants: M.
        local: How clients train.
        schedule: How their learning rate changes over the rounds.
        server: How the server moves along the method's step.
        average: How much each client counts in means of updates and reports.
        select: How cohorts are drawn.
        evaluate_every: The number of rounds between evaluations; 0 evaluates the last round only, which always is.
        evaluation_reference: r_eval, the common reference of the evaluation hypervolume.
        seed: The seed of all random draws of the run.
        screening: The server's bounds on replies and the number of replies that it needs.
        faults: Simulated client failures.
        explosion: The run has diverged if a test loss exceeds this multiple of the first evaluation's largest.
        cohort: Whether the history has who was asked, whose answers were taken, and the norms of their updates; None
            if it has them for cohorts of at most `LISTED` clients.
        tests: Whether models are evaluated on test examples after rounds.
        validates: The tasks' names, where clients evaluate models on examples that they hold out; else empty. Their
            evaluation then takes the place of the test's, which is computed once, for the model that is kept.
        metrics: The tasks' main metrics, where clients are to compute them on what they hold out.
        judged: The tasks, by number, that count for divergence and for the choice of a model; None for all.
        selects: Whether the evaluations choose the model or the last round, so that every task has to be judged.
        alone: Whether one client trains alone. Its few examples may not define a metric; accuracy judges the task then.
    """

    rounds: int
    participants: int
    local: LocalTraining
    schedule: Schedule = field(default_factory=Schedule, kw_only=True)
    server: ServerOptimiser = field(default_factory=ServerOptimiser, kw_only=True)
    average: Average = field(default="clients", kw_only=True)
    select: Select = field(default="uniform", kw_only=True)
    evaluate_every: int = 1
    evaluation_reference: float = 3.0
    seed: int = 0
    screening: Screening = field(default_factory=Screening)
    faults: Faults = NO_FAULTS
    explosion: float = 1000.0
    cohort: bool | None = field(default=None, kw_only=True)
    tests: bool = field(default=True, kw_only=True)
    validates: tuple[str, ...] = field(default=(), kw_only=True)
    metrics: tuple[MetricName | None, ...] = field(default=(), kw_only=True)
    judged: tuple[int, ...] | None = field(default=None, kw_only=True)
    selects: bool = field(default=False, kw_only=True)
    alone: bool = field(default=False, kw_only=True)

    def local_in(self, t: int) -> LocalTraining:
        """The local training in round t, counted from 0."""
        return replace(self.local, learning_rate=self.local.learning_rate * self.schedule.at(t, self.rounds))

    @property
    def lists(self) -> bool:
        """Whether the history names the clients of every round."""
        return self.participants <= LISTED if self.cohort is None else self.cohort

    def evaluates(self, number: int) -> bool:
        """Whether the model is evaluated after this round."""
        return number == self.rounds or (self.evaluate_every > 0 and number % self.evaluate_every == 0)
