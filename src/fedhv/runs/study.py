"""A study: several methods and seeds on one setting, each a run folder. Finished runs are not repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedhv.engines import Choice, choose_engine
from fedhv.methods import Method
from fedhv.methods.base import needs_reference
from fedhv.methods.parts.watch import ReferenceBreached
from fedhv.problem.problem import Problem
from fedhv.runs.back import take_all_back
from fedhv.runs.baseline_run import BaselineRun, FollowingParts
from fedhv.runs.baselines.methods import baseline_method
from fedhv.runs.calibration import calibrated_under, calibrated_with
from fedhv.runs.cluster import on_ray
from fedhv.runs.config import Setting
from fedhv.runs.defaults import EXECUTORS
from fedhv.runs.executors import one_by_one, together
from fedhv.runs.folder import check_folder, lacks_fingerprint, remove_runs
from fedhv.runs.history import Following
from fedhv.runs.processes import in_processes
from fedhv.runs.record import REFERENCE, SUMMARY, Run, read_run, read_summary
from fedhv.runs.reference import Reference
from fedhv.runs.shared_reference import calibration_runs, shared_reference
from fedhv.runs.study_run import Outcome, StudyRun
from fedhv.runs.variants import Variant, as_variants
from fedhv.simulation.observer import Announcing, Observer, Progress
from fedhv.support.cores import usable_cores
from fedhv.support.errors import Diverged, FedHVError, InputError
from fedhv.support.files import make_folder


class StudyFailed(FedHVError):
    """Some runs of a study failed; the others are finished.

    Attributes:
        runs: The finished runs.
        failures: What ended the others.
    """

    def __init__(self, runs: Sequence[Run], failures: Sequence[FedHVError]) -> None:
        reasons = " ".join(str(failure) for failure in failures)
        super().__init__(f"{reasons} The other runs ({len(runs)}) are finished.")
        self.runs = list(runs)
        self.failures = list(failures)

    @property
    def diverged(self) -> bool:
        """Whether all runs that failed have diverged, or were stopped by the watch of their reference."""
        return all(isinstance(each, Diverged | ReferenceBreached) for each in self.failures)


def run_study(
    setting: Setting,
    problem: Problem,
    methods: Sequence[Method | Variant],
    seeds: Sequence[int],
    folder: Path,
    *,
    until: int | None = None,
    usual: Sequence[Method] = (),
    own: bool = False,
    given: Reference | None = None,
    jobs: int | None = None,
    executor: str = EXECUTORS[0],
    engine: str = "auto",
    device: str = "auto",
    precision: str = "auto",
    data: str | None = None,
    init: Any = None,
    resume_from: int | None = None,
    fresh: bool = False,
    baselines: Sequence[str] = (),
    observer: Observer,
) -> list[Run]:
    """Every method with every seed, each in its own folder. Finished runs are read, the others are run or resumed.

    A method may be a `Variant`, so that a study may have it several times. With `until` runs pause after that
    round, and a later call continues them. `usual` are the methods with their usual learning rates, where variants
    have others: those of the calibration and of baselines. `own` is a problem of the user's, which stays in this
    process; `given` is the reference for all that take one; `init` is where the problem's model begins, for
    processes that load it themselves. With `fresh` what the folder holds of these runs is deleted first. With
    `resume_from` runs that have gone further go back to that round first. `baselines` are runs of the study too,
    after those of the methods.
    """
    variants = as_variants(methods)
    choice = choose_engine(engine, device, precision, problem, setting.plan(variants[0].method, seeds[0]))
    usual = usual or [each.method for each in variants]
    others = [baseline_method(name, setting, len(problem.tasks), usual[0]) for name in baselines]
    if executor == "ray" and choice.engine == "ray":
        raise InputError(
            "--executor ray gives every run one worker, --engine ray gives it all of them. Found both; use one."
        )
    single = own or choice.engine == "ray"
    workers = 1 if single else min(jobs or usable_cores(), len(seeds) * (len(variants) + len(others)))
    beside = choice if engine != "auto" else _beside_others(choice, executor, workers)
    played = [
        StudyRun(setting, each.method, seed, each.place(folder, seed), None, beside, data, init, each.name, until)
        for seed in seeds
        for each in variants
    ]
    compared = [
        BaselineRun(setting, other, seed, folder / f"{other.label}-seed{seed}", beside, data, init)
        for seed in seeds
        for other in others
    ]
    study: list[StudyRun | BaselineRun] = [*played, *compared]
    whose = calibrated_with(usual)
    if whose is not None and given is None:
        calibrated_under(setting, problem, data)  # bad input is found before anything is written or deleted
    if fresh:
        shared = whose is not None  # else other runs of the folder keep their reference
        remove_runs([*(each.folder for each in study), *(calibration_runs(folder) if shared else [])])
        if shared:
            (folder / REFERENCE).unlink(missing_ok=True)
    for each in study:
        check_folder(each.folder, each.config(problem), resume=True)
    if resume_from is not None:
        take_all_back([each.folder for each in played], resume_from, observer)
    finished = sum(read_summary(each.folder) is not None for each in study)
    if finished:
        observer.message(f"{finished} of {len(study)} runs are read from {folder}.")
    observer = Announcing(observer, str(beside) if beside.announce else "")
    make_folder(folder)
    frozen = given
    if whose is not None:  # a calibration has the machine to itself
        frozen = shared_reference(setting, whose, problem, folder, given, choice, data, observer)
    # A method that brings its own reference keeps it, unless the user gave one for all.
    study[: len(played)] = [
        replace(each, reference=frozen if needs_reference(each.method) else given) for each in played
    ]
    if finished == len(study):
        _warn_without_fingerprints(study, observer)
        outcomes: Sequence[Outcome] = one_by_one(study, problem, Observer())  # they are only read
    elif executor == "ray":
        outcomes = on_ray(study, jobs, _ticker(study, problem, observer))
    elif beside.engine == "stacked":
        outcomes = together(study, problem, jobs, observer)
    elif workers == 1:
        outcomes = one_by_one(study, problem, observer)
    else:
        outcomes = in_processes(study, workers, _ticker(study, problem, observer))
    return _complete(study, outcomes)


def _beside_others(choice: Choice, executor: str, workers: int) -> Choice:
    """The engine of a run that shares the machine with other runs, where none was asked for."""
    if choice.engine != "parallel" or (executor != "ray" and workers == 1):
        return choice
    many = "runs are tasks of a Ray cluster" if executor == "ray" else f"{workers} runs at a time"
    return replace(choice, engine="sequential", reason=f"{many}, a core for each")


def _warn_without_fingerprints(study: Sequence[StudyRun | BaselineRun], observer: Observer) -> None:
    if old := sum(lacks_fingerprint(each.folder) for each in study):
        observer.message(
            f"{old} of them were begun by a version without fingerprints: whether they belong to this problem cannot "
            "be checked."
        )


def _ticker(study: Sequence[StudyRun | BaselineRun], problem: Problem, observer: Observer) -> Callable[[], None]:
    """Shows how far the runs are, which other processes compute."""
    followed = [
        (each, Following(each.folder) if isinstance(each, StudyRun) else FollowingParts(each, problem))
        for each in study
    ]

    def tick() -> None:
        observer.runs([_progress(each, history) for each, history in followed])

    return tick


def without_diverged(study: Callable[[], list[Run]]) -> list[Run]:
    """The runs of a study without those that diverged; whatever else ends a run is an error."""
    try:
        return study()
    except StudyFailed as failed:
        if not failed.diverged:
            raise
        return failed.runs


def _complete(study: Sequence[StudyRun | BaselineRun], outcomes: Sequence[Outcome]) -> list[Run]:
    """The runs, if none failed."""
    failures = [outcome for outcome in outcomes if isinstance(outcome, FedHVError)]
    runs = [
        _ended(each.folder) if each.until is None else read_run(each.folder)
        for each, outcome in zip(study, outcomes, strict=True)
        if not isinstance(outcome, FedHVError)
    ]
    if failures:
        raise StudyFailed(runs, failures)
    return runs


def _ended(folder: Path) -> Run:
    """A finished run. Its summary is read now, its history and model on access."""
    run = read_run(folder)
    _ = run.summary, run.reference
    return run


def _progress(each: StudyRun | BaselineRun, history: Following | FollowingParts) -> Progress:
    """How far a run is, read off its history: no channel between processes is needed."""
    history.news()
    rounds = min(each.setting.training.rounds, each.until or each.setting.training.rounds)
    if each.setting.evaluation.patience and (each.folder / SUMMARY).exists():
        rounds = history.count  # it may have stopped early
    return Progress(each.label, min(history.count, rounds), rounds, history.last_evaluated)
