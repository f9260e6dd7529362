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
from fedhv.runs.calibration import calibrated_under, calibrated_with, check_calibration, find_reference
from fedhv.runs.cluster import on_ray
from fedhv.runs.config import Setting
from fedhv.runs.defaults import EXECUTORS
from fedhv.runs.executors import one_by_one, together
from fedhv.runs.folder import check_folder, lacks_fingerprint, remove_runs
from fedhv.runs.history import Following
from fedhv.runs.job import Job
from fedhv.runs.processes import in_processes
from fedhv.runs.record import REFERENCE, SUMMARY, Run, read_run, read_summary
from fedhv.runs.reference import Reference, read_reference
from fedhv.runs.study_run import Outcome, StudyRun
from fedhv.runs.variants import Variant, as_variants
from fedhv.simulation.observer import Announcing, Observer, Progress
from fedhv.support.cores import usable_cores
from fedhv.support.errors import Diverged, FedHVError, InputError
from fedhv.support.files import make_folder

CALIBRATION = "calibration"
"""The folder of the runs behind a study's reference."""


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
    alone = choice  # a calibration has the machine to itself
    if executor == "ray" and engine == "auto" and choice.engine == "parallel":
        choice = replace(choice, engine="sequential", reason="runs are tasks of a Ray cluster, a core for each")
    elif engine == "auto" and choice.engine == "parallel" and workers > 1:
        choice = replace(choice, engine="sequential", reason=f"{workers} runs at a time, a core for each")
    places = [(each.place(folder, seed), each.method, seed) for each in variants for seed in seeds]
    compared = [
        BaselineRun(setting, other, seed, folder / f"{other.label}-seed{seed}", choice, data, init)
        for seed in seeds
        for other in others
    ]
    whose = calibrated_with(usual)
    if whose is not None and given is None:
        calibrated_under(setting, problem, data)  # bad input is found before anything is written or deleted
    if fresh:
        stale = [*(place for place, _, _ in places), *(each.folder for each in compared)]
        shared = whose is not None  # else other runs of the folder keep their reference
        remove_runs([*stale, *((folder / CALIBRATION).glob("*") if shared else [])])
        if shared:
            (folder / REFERENCE).unlink(missing_ok=True)
    for place, method, seed in places:
        check_folder(place, Job(setting, problem, method, seed, choice).config(), resume=True)
    for each in compared:
        check_folder(each.folder, each.config(problem), resume=True)
    if resume_from is not None:
        take_all_back([place for place, _, _ in places], resume_from, observer)
    every = [*(place for place, _, _ in places), *(each.folder for each in compared)]
    finished = sum(read_summary(place) is not None for place in every)
    if finished:
        observer.message(f"{finished} of {len(every)} runs are read from {folder}.")
    observer = Announcing(observer, str(choice) if choice.announce else "")
    frozen = given
    if whose is not None:
        make_folder(folder)
        frozen = _shared_reference(setting, whose, problem, folder, frozen, alone, data, observer)
    make_folder(folder)
    study: list[StudyRun | BaselineRun] = [
        # A method that brings its own reference keeps it, unless the user gave one for all.
        StudyRun(
            setting,
            each.method,
            seed,
            each.place(folder, seed),
            frozen if needs_reference(each.method) else given,
            choice,
            data,
            init,
            each.name,
            until,
        )
        for seed in seeds
        for each in variants
    ]
    study += compared
    followed = [
        (each, Following(each.folder) if isinstance(each, StudyRun) else FollowingParts(each, problem))
        for each in study
    ]

    def tick() -> None:
        observer.runs([_progress(each, history) for each, history in followed])

    if finished == len(every):
        if old := sum(map(lacks_fingerprint, every)):
            observer.message(
                f"{old} of them were begun by a version without fingerprints: whether they belong to this problem "
                "cannot be checked."
            )
        outcomes: Sequence[Outcome] = one_by_one(study, problem, Observer())  # they are only read
    elif executor == "ray":
        outcomes = on_ray(study, jobs, tick)
    elif choice.engine == "stacked":
        outcomes = together(study, problem, jobs, observer)
    elif workers == 1:
        outcomes = one_by_one(study, problem, observer)
    else:
        outcomes = in_processes(study, workers, tick)
    return _complete(study, outcomes)


def without_diverged(study: Callable[[], list[Run]]) -> list[Run]:
    """The runs of a study without those that diverged; whatever else ends a run is an error."""
    try:
        return study()
    except StudyFailed as failed:
        if not failed.diverged:
            raise
        return failed.runs


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
    path = folder / REFERENCE
    if path.exists():
        kept = read_reference(path)
        if given is not None and given.values != kept.values:
            raise InputError(f"{path} holds another reference than the given one. Choose another --out.")
        if given is None and kept.provenance.calibrated:
            check_calibration(kept, setting, method, problem, choice, data, folder / CALIBRATION)
        return kept
    if given is None:
        observer.message("No reference was given.")
    place = folder / CALIBRATION
    reference = given or find_reference(
        setting, method, problem, choice=choice, data=data, folder=place, observer=observer
    )
    reference.write(path)
    return reference


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
