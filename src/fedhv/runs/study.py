"""A study: several methods and seeds on one setting, every one a run folder; what is done is never done again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedhv.engines import Choice, choose_engine
from fedhv.engines.rehearsal import rehearse
from fedhv.methods import METHODS, FedHV, Method
from fedhv.methods.base import needs_reference, takes_reference
from fedhv.problem.problem import Problem
from fedhv.runs.calibration import calibrate, calibrated_under, check_calibration
from fedhv.runs.cluster import check_ray, on_ray
from fedhv.runs.config import Setting
from fedhv.runs.defaults import EXECUTORS, SEEDS
from fedhv.runs.folder import Result, check_folder
from fedhv.runs.history import Following
from fedhv.runs.job import Execution, Job, execute_together
from fedhv.runs.processes import in_processes
from fedhv.runs.reference import Reference, read_reference
from fedhv.runs.reference_watch import warn_of
from fedhv.runs.resolve import resolve, resolve_reference
from fedhv.runs.run import prepare
from fedhv.simulation.observer import Announcing, Observer
from fedhv.support.cores import usable_cores
from fedhv.support.errors import FedHVError, InputError, Interrupted, unknown
from fedhv.support.files import make_folder
from fedhv.support.numbers import as_seed


@dataclass(frozen=True)
class StudyRun:
    """One run of a study, as it can be sent to another process."""

    setting: Setting
    method: Method
    seed: int
    folder: Path
    reference: Reference | None
    choice: Choice
    data: str | None

    @property
    def label(self) -> str:
        """What progress shows."""
        return f"{self.method.label} seed {self.seed}"

    def job(self, problem: Problem) -> Job:
        """The job that this run is."""
        job = Job(self.setting, problem, self.method, self.seed, self.choice, self.folder, self.reference)
        job.open(resume=True)
        return job

    def __call__(self, problem: Problem | None = None, observer: Observer | None = None) -> dict[str, Any]:
        """Run, go on, or read what is there."""
        observer = observer or Observer()
        if problem is None:
            _, problem = resolve(self.setting, data=self.data)
        ready = prepare(self.job(problem), observer, self.data)
        result = ready if isinstance(ready, Result) else ready.execute(observer)
        return result.summary


Progress = tuple[str, int, int, dict[str, Any] | None]
"""A run's label, its finished rounds, all its rounds, and its last evaluated round."""


class StudyFailed(FedHVError):
    """Some runs of a study could not go on; the others are finished."""

    def __init__(self, summaries: list[dict[str, Any]], failures: Sequence[FedHVError]) -> None:
        reasons = " ".join(str(failure) for failure in failures)
        super().__init__(f"{reasons} The other runs ({len(summaries)}) are finished.")
        self.summaries = summaries


class StudyObserver(Observer):
    """Watches the runs of a study that go on at the same time."""

    def runs(self, states: Sequence[Progress]) -> None:
        """How far every run of the study is."""


class AnnouncingStudy(Announcing, StudyObserver):
    """Before the first thing that is told of a study, says something."""

    _observer: StudyObserver

    def runs(self, states: Sequence[Progress]) -> None:
        """Pass it on."""
        self._announce()
        self._observer.runs(states)


def compare(
    what: str | Setting | Problem,
    methods: Sequence[str | Method] = tuple(METHODS),
    seeds: Sequence[int] = SEEDS,
    *,
    rounds: int | None = None,
    out: str | Path,
    jobs: int | None = None,
    executor: str = EXECUTORS[0],
    engine: str = "auto",
    device: str = "auto",
    precision: str = "auto",
    reference: str | Path | Reference | Sequence[float] | None = None,
    override: Iterable[str] = (),
    data: str | None = None,
    observer: StudyObserver | None = None,
) -> list[dict[str, Any]]:
    """Every method with every seed on one setting; returns the summaries of the runs.

    Runs that are finished in `out` are read, interrupted ones resumed. All runs of FedHV share one reference: the
    given one, or one that is calibrated first and kept in `out/reference.toml`. Where several methods need a
    reference, it is calibrated with FedHV's learning rates, or without FedHV with those of the first of them.

    Args:
        what: As for `run`; a `Problem` stays in this process.
        methods: Names, "package.module:Class" or `Method`s.
        seeds: One run of every method for each.
        rounds: Instead of the setting's.
        out: The study's folder.
        jobs: How many runs at a time: by default one process for every core, or, with the engine "stacked", all
            of them in one computation; on a Ray cluster as many as it has room for.
        executor: "processes" of this machine, or "ray": every run is a task of the Ray cluster that this machine is
            part of (or that RAY_ADDRESS names), else of one that is started here. The datasets must be where `data`
            says on all its machines; the study's folder may be shared but need not.
        engine: As for `run`.
        device: As for `run`.
        precision: As for `run`.
        reference: As for `run`.
        override: As for `run`.
        data: As for `run`.
        observer: Is told about progress.
    """
    unwatched, observer = observer is None, observer or StudyObserver()
    if jobs is not None and jobs < 1:
        raise InputError(f"`jobs` should be at least 1. Found {jobs}.")
    if executor not in EXECUTORS:
        raise unknown("executor", executor, EXECUTORS)
    if executor == "ray":
        check_ray()
        if isinstance(what, Problem):
            raise InputError("A problem of your own stays in this process. For --executor ray name a setting.")
    _several("methods", methods)
    _several("seeds", seeds)
    setting, problem = resolve(what, override, rounds, data)
    chosen = [setting.chosen(method) for method in methods]
    _distinct("methods", [method.label for method in chosen], " Variants of a method are studies with an `out` each.")
    seeds = [as_seed(seed) for seed in seeds]
    _distinct("seeds", seeds)
    rehearse(problem)  # bad input is found before anything is written
    choice = choose_engine(engine, device, precision, problem, setting.plan(chosen[0], seeds[0]))
    workers = 1 if isinstance(what, Problem) else min(jobs or usable_cores(), len(seeds) * len(chosen))
    alone = choice  # a calibration has the machine to itself
    if executor == "ray" and engine == "auto" and choice.engine == "parallel":
        choice = replace(choice, engine="sequential", reason="runs are tasks of a Ray cluster, a core for each")
    elif engine == "auto" and choice.engine == "parallel" and workers > 1:
        choice = replace(choice, engine="sequential", reason=f"{workers} runs at a time, a core for each")
    frozen = resolve_reference(reference, setting, problem)
    if frozen is not None and not any(takes_reference(method) for method in chosen):
        raise InputError("None of the methods takes a reference. Leave out --reference.")
    given, folder = frozen, Path(out)
    for method in chosen:
        for seed in seeds:
            place = folder / f"{method.label}-seed{seed}"
            check_folder(place, Job(setting, problem, method, seed, choice).config(), resume=True)
    observer = AnnouncingStudy(observer, str(choice) if choice.worth_saying else "")
    lacking = [method for method in chosen if needs_reference(method)]
    if lacking:
        if given is None:
            calibrated_under(setting, problem, data)
        make_folder(folder)
        whose = next((method for method in lacking if method.label == FedHV.name), lacking[0])
        frozen = _shared_reference(setting, whose, problem, folder, frozen, alone, data, observer)
    make_folder(folder)
    study = [
        # A method that brings its own reference keeps it, unless the user gave one for all.
        StudyRun(
            setting,
            method,
            seed,
            folder / f"{method.label}-seed{seed}",
            frozen if needs_reference(method) else given,
            choice,
            data,
        )
        for seed in seeds
        for method in chosen
    ]
    followed = [(each, Following(each.folder)) for each in study]

    def tick() -> None:
        observer.runs([_progress(each, history) for each, history in followed])

    if executor == "ray":
        summaries = _complete(on_ray(study, jobs, tick))
    elif choice.engine == "stacked":
        summaries = together(study, problem, jobs or len(study), observer)
    elif workers == 1:
        summaries = one_by_one(study, problem, observer)
    else:
        summaries = _complete(in_processes(study, workers, tick))
    if unwatched:
        for summary in summaries:
            warn_of(summary)
    return summaries


def _shared_reference(
    setting: Setting,
    method: Method,
    problem: Problem,
    folder: Path,
    given: Reference | None,
    choice: Choice,
    data: str | None,
    observer: Observer,
) -> Reference:
    path = folder / "reference.toml"
    if path.exists():
        kept = read_reference(path)
        if given is not None and given.values != kept.values:
            raise InputError(f"{path} holds another reference than the given one. Choose another --out.")
        if given is None and kept.provenance.source == "calibration":
            check_calibration(kept, setting, method, problem, choice, data, folder / "calibration")
        return kept
    if given is None:
        observer.say("No reference was given.")
    place = folder / "calibration"
    reference = given or calibrate(setting, method, problem, choice=choice, data=data, folder=place, observer=observer)
    reference.write(path)
    return reference


def together(study: Sequence[StudyRun], problem: Problem, most: int, observer: StudyObserver) -> list[dict[str, Any]]:
    """Play runs in step on one engine, so many at a time, their clients stacked in one computation."""
    outcomes: dict[Path, dict[str, Any] | FedHVError] = {}
    waiting: list[Job] = []
    for each in study:
        ready = prepare(each.job(problem), Observer(), each.data)
        if isinstance(ready, Result):
            outcomes[each.folder] = ready.summary
        else:
            waiting.append(ready)

    def tick(executions: Sequence[Execution]) -> None:
        observer.runs([_progress_of(execution) for execution in executions if execution.failure is None])

    for start in range(0, len(waiting), most):
        group = waiting[start : start + most]
        for job, outcome in zip(group, execute_together(group, tick, observer), strict=True):
            assert job.folder is not None
            outcomes[job.folder] = outcome.summary if isinstance(outcome, Result) else outcome
    return _complete([outcomes[each.folder] for each in study])


def one_by_one(study: Sequence[StudyRun], problem: Problem, observer: StudyObserver) -> list[dict[str, Any]]:
    """Play runs one after the other in this process."""
    outcomes: list[dict[str, Any] | FedHVError] = []
    for each in study:
        try:
            outcomes.append(each(problem, observer))
        except (Interrupted, InputError):
            raise
        except FedHVError as error:
            outcomes.append(error)
    return _complete(outcomes)


def _complete(outcomes: Sequence[dict[str, Any] | FedHVError]) -> list[dict[str, Any]]:
    """The summaries, if no run failed."""
    summaries = [outcome for outcome in outcomes if not isinstance(outcome, FedHVError)]
    failures = [outcome for outcome in outcomes if isinstance(outcome, FedHVError)]
    if failures:
        raise StudyFailed(summaries, failures)
    return summaries


def _progress_of(execution: Execution) -> Progress:
    return execution.job.label, execution.done, execution.job.plan.rounds, execution.history.last_evaluated


def _progress(each: StudyRun, history: Following) -> Progress:
    """How far a run is, read off its history: no channel between processes is needed."""
    history.news()
    return each.label, history.count, each.setting.training.rounds, history.last_evaluated


def _several(name: str, values: object) -> None:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"`{name}` should be a list. Found {values!r}.")


def _distinct(name: str, values: Sequence[Any], remedy: str = "") -> None:
    if not values or len(set(values)) < len(values):
        raise InputError(f"`{name}` should name at least one, and none twice. Found {list(values)}.{remedy}")
