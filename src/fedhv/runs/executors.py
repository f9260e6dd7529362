"""How the runs of a study are executed in this process: in step on one engine, or one after the other.

Other executors are in `processes` and `cluster`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedhv.problem.problem import Problem
from fedhv.runs.baseline_run import BaselineRun
from fedhv.runs.baselines.methods import Pooled
from fedhv.runs.baselines.parts import pooled
from fedhv.runs.defaults import EXECUTORS
from fedhv.runs.execution import Execution
from fedhv.runs.job import Job
from fedhv.runs.prepare import prepare
from fedhv.runs.record import Run
from fedhv.runs.study_run import Outcome, StudyRun
from fedhv.runs.together import execute_together
from fedhv.simulation.observer import Observer, Progress
from fedhv.support.errors import FedHVError, InputError, Interrupted, unknown
from fedhv.support.ray.connection import check_ray


def check_executor(executor: str, jobs: int | None, own: bool) -> None:
    """Refuse an executor that there is not, or that cannot have a problem of one's `own`."""
    if jobs is not None and jobs < 1:
        raise InputError(f"`jobs` should be at least 1. Found {jobs}.")
    if executor not in EXECUTORS:
        raise unknown("executor", executor, EXECUTORS)
    if executor == "ray":
        check_ray("--executor ray")
        if own:
            raise InputError("Your own problem cannot be sent to other processes. For --executor ray name a setting.")


def together(
    study: Sequence[StudyRun | BaselineRun], problem: Problem, most: int | None, observer: Observer
) -> list[Outcome]:
    """Run several runs in step on one engine, with their clients stacked in one computation.

    The parts of baselines are such runs too. Those of a pool have another problem and are computed after the others.
    """
    outcomes: dict[Path, Outcome] = {}
    waiting: list[Job] = []
    pool = pooled(problem) if any(each.method.label == Pooled.name for each in study) else None
    for each in study:
        if isinstance(each, BaselineRun):
            waiting += each.waiting(problem, pool)
            continue
        ready = prepare(each.job(problem), Observer(), each.data)
        if isinstance(ready, Run):
            outcomes[each.folder] = ready.summary
        else:
            waiting.append(ready)

    known: dict[int, Progress] = {}

    def tick(executions: Sequence[Execution]) -> None:
        observer.runs(_progress_together([each for each in executions if each.failure is None], known))

    for place in (problem, pool):
        jobs = [job for job in waiting if job.problem is place]
        for start in range(0, len(jobs), most or len(jobs) or 1):
            group = jobs[start : start + (most or len(jobs))]
            for job, outcome in zip(group, execute_together(group, tick, observer, study[0].until), strict=True):
                assert job.folder is not None
                outcomes[job.folder] = outcome.summary if isinstance(outcome, Run) else outcome
    for each in study:
        if isinstance(each, BaselineRun):
            inside = [found for place, found in outcomes.items() if each.folder in place.parents]
            failed = [found for found in inside if isinstance(found, FedHVError)]
            outcomes[each.folder] = failed[0] if failed else each.combine(problem)
    return [outcomes[each.folder] for each in study]


def one_by_one(study: Sequence[StudyRun | BaselineRun], problem: Problem, observer: Observer) -> list[Outcome]:
    """Play runs one after the other in this process."""
    outcomes: list[Outcome] = []
    for each in study:
        try:
            outcomes.append(each(problem, observer))
        except (Interrupted, InputError):
            raise
        except FedHVError as error:
            outcomes.append(error)
    return outcomes


def _progress_together(executions: Sequence[Execution], known: dict[int, Progress]) -> list[Progress]:
    """A line for every run; the parts of a baseline have one together.

    `known` keeps the progress of every execution: one of them has changed since the last call, the others have not.
    """
    lines: dict[str, list[Progress]] = {}
    for each in executions:
        found = known.get(id(each))
        if found is None or found.done != each.done or each.ended:
            found = known[id(each)] = _progress_of(each)
        job = each.job
        label = f"{job.method.label} seed {job.seed}" if job.part else found.label
        lines.setdefault(label, []).append(found)
    return [
        found[0] if len(found) == 1 else Progress(label, sum(p.done for p in found), sum(p.rounds for p in found), None)
        for label, found in lines.items()
    ]


def _progress_of(execution: Execution) -> Progress:
    rounds = execution.done if execution.ended else execution.last  # it may have stopped early
    return Progress(execution.job.label, min(execution.done, rounds), rounds, execution.history.last_evaluated)
