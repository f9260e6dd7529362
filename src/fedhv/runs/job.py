"""A job is the full definition of a run. Executing it computes the rounds and writes them if there is a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedhv._version import __version__
from fedhv.engines import Choice, choose_engine
from fedhv.methods.base import Method, reference_of, with_reference
from fedhv.methods.preferences import with_preferences
from fedhv.problem.metrics import as_metrics
from fedhv.problem.problem import Problem
from fedhv.problem.tasks import Task
from fedhv.runs.config import Setting, method_tables
from fedhv.runs.fingerprint import fingerprint
from fedhv.runs.folder import check_folder, open_folder
from fedhv.runs.record import Run
from fedhv.runs.reference import Reference
from fedhv.simulation.observer import Observer
from fedhv.simulation.plan import Plan
from fedhv.simulation.validation import MetricName
from fedhv.support import toml
from fedhv.support.errors import FedHVError, InputError
from fedhv.support.files import locked, make_folder


@dataclass(frozen=True)
class Job:
    """The full definition of a run, and its folder.

    Attributes:
        setting: The setting.
        problem: The setting's benchmark, divided among its clients.
        method: The method with its hyper-parameters.
        seed: The seed of all random draws of the run.
        choice: The engine.
        folder: The run's folder; nothing is written without one.
        reference: The method's reference with its origin and cost.
        purpose: What the run is for, if it is not the method's own; its name in progress and errors.
        name: The variant's in a study that has the method several times; its name in progress and errors.
        part: What makes the run part of a baseline, for its configuration: the task or the client.
        among: The clients that take part, by number; None for all.
        judged: The tasks, by number, that count for divergence and for the choice of a model; None for all.
    """

    setting: Setting
    problem: Problem
    method: Method
    seed: int
    choice: Choice = field(default_factory=choose_engine)
    folder: Path | None = None
    reference: Reference | None = None
    purpose: str = ""
    name: str = ""
    part: str = ""
    among: tuple[int, ...] | None = None
    judged: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Raise an error for invalid input before anything is written."""
        n = len(self.problem.clients)
        _check_selection(self.setting, self.problem)
        if self.plan.participants > n:
            raise InputError(
                f"`federation.participants` (M) should be at most N = {n}. Found M = {self.plan.participants}."
            )
        if self.setting.preferences and not self.purpose:  # a calibration has uniform weights
            tasks = [task.name for task in self.problem.tasks]
            object.__setattr__(self, "method", with_preferences(self.method, self.setting.preferences, tasks))
        self.method.check(len(self.problem.tasks))
        _check_recorded(self.method)
        self.setting.faults.check(len(self.problem.tasks))
        own = reference_of(self.method)
        if own is not None:
            Reference(own).check(tuple(task.name for task in self.problem.tasks))

    @cached_property
    def plan(self) -> Plan:
        """The plan of the rounds; kept, because progress asks for it after every round of every run."""
        plan, problem = self.setting.plan(self.method, self.seed), self.problem
        selects = self.setting.evaluation.selects
        if problem.validation is None:
            plan = replace(plan, tests=problem.test is not None, judged=self.judged, selects=selects)
        else:
            plan = replace(
                plan,
                tests=False,
                validates=tuple(task.name for task in problem.tasks),
                metrics=() if "reports" in self.choice.fixes else tuple(map(_main_metric, problem.tasks)),
                judged=self.judged,
                selects=selects,
                alone=self.among is not None and len(self.among) == 1,
            )
        return self.choice.adapted(plan)

    @property
    def label(self) -> str:
        """The label in progress."""
        return f"{self.purpose or self.name or self.method.label} seed {self.seed}"

    def config(self) -> dict[str, Any]:
        """`config.toml`: the setting with this method only; the reference has its own file."""
        parameters = {key: value for key, value in method_tables(self.method).items() if key != "reference"}
        return {
            "run": {"method": self.method.label, "seed": self.seed, "fedhv": __version__}
            | ({"part": self.part} if self.part else {})
            | self.choice.fixes,
            "machine": self.choice.machine | {"why": self.choice.reason},
            "fingerprint": fingerprint(self.problem, self.method),
            "setting": toml.as_tables(self.setting) | {"methods": {self.method.label: parameters}},
        }

    def open(self, resume: bool) -> None:
        """Create the folder, or check that it has this run."""
        with self.opened(resume):
            pass

    @contextmanager
    def opened(self, resume: bool) -> Iterator[None]:
        """The same, with a lock on the folder. A process that does not get the lock writes nothing."""
        if self.folder is None:
            yield
            return
        config = self.config()
        check_folder(self.folder, config, resume)  # bad input makes no folder
        with locked(make_folder(self.folder)):
            open_folder(self.folder, config, resume)
            yield

    def with_reference(self, reference: Reference) -> Job:
        """The same job with the method's reference."""
        return replace(self, method=with_reference(self.method, reference.values), reference=reference)

    def execute(self, observer: Observer | None = None, until: int | None = None) -> Run:
        """Play the rounds, from the last checkpoint on if the folder has one. With `until` pause after that round."""
        from fedhv.runs.together import execute_together  # it executes jobs, so it imports this module

        (outcome,) = execute_together([self], lambda jobs: None, observer or Observer(), until)
        if isinstance(outcome, FedHVError):
            raise outcome
        return outcome


def _check_selection(setting: Setting, problem: Problem) -> None:
    """Reject a choice of models without examples to choose by."""
    chosen = setting.evaluation
    if chosen.selects and problem.validation is None and chosen.on == "test":
        asks = "keep = 'best'" if chosen.keep == "best" else f"patience = {chosen.patience}"
        raise InputError(
            f"`evaluation.{asks}` needs examples that clients hold out. Found none; set `federation.validation`, for "
            "example 0.1."
        )


def _check_recorded(method: Method) -> None:
    """Reject hyper-parameters that a run's configuration cannot hold."""
    for key, value in method_tables(method).items():
        try:
            toml.write({key: value})
        except TypeError as error:
            raise InputError(
                f"Method '{method.label}': `{key}` should be a number, text, or a list or dict of them, since the "
                f"run's configuration has it. Found that a {error}."
            ) from None


def _main_metric(task: Task) -> MetricName | None:
    for metric in as_metrics(task.name, task.metrics):
        return MetricName(metric.name, metric.better == "lower")
    return None
