"""One method on a setting or on a problem: `fedhv.run`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedhv.engines import Choice, choose_engine
from fedhv.engines.trial_run import check_model
from fedhv.interface.checks import changes_of, check_applied, check_reference_taken
from fedhv.interface.surroundings import warn_of_scales, watched, with_problem
from fedhv.methods import Method
from fedhv.methods.base import needs_reference
from fedhv.problem.problem import Problem
from fedhv.runs.back import check_resume_from, take_all_back
from fedhv.runs.calibration import calibrated_under
from fedhv.runs.config import Setting
from fedhv.runs.folder import remove_runs
from fedhv.runs.job import Job
from fedhv.runs.prepare import prepare
from fedhv.runs.record import Run
from fedhv.runs.reference import Reference
from fedhv.runs.resolve import resolve, resolve_reference
from fedhv.simulation.observer import Observer
from fedhv.support.numbers import as_seed


def run(
    what: str | Setting | Problem,
    method: str | Method = "fedhv",
    *,
    seed: int = 0,
    rounds: int | None = None,
    out: str | Path | None = None,
    engine: str | Choice = "auto",
    device: str = "auto",
    precision: str = "auto",
    reference: str | Path | Reference | Sequence[float] | Mapping[str, float] | None = None,
    init: Any = None,
    resume: bool = False,
    resume_from: int | None = None,
    fresh: bool = False,
    override: Iterable[str] = (),
    data: str | None = None,
    observer: Observer | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Run:
    """Run one method on a setting or on your own problem.

    Args:
        what: A setting's name or TOML file, a `Setting`, or a `Problem`.
        method: A method's name, "package.module:Class", or a `Method`.
        seed: The seed of all random draws of the run.
        rounds: The number of rounds, instead of the setting's.
        out: The run's folder; nothing is written without one.
        engine: "auto", an engine's name, or a `Choice` that makes an engine.
        device: "auto", "cpu", "cuda", or "mps" (Apple's GPU).
        precision: "auto", "float32", "tf32" or "bf16".
        reference: For FedHV: a file, the name of one of the setting's references, or the losses themselves, in the
            order of the tasks or by their names. Without one it is calibrated first.
        init: The initial model instead of its own initialisation: a run's folder, a file, a state dict, or a module.
        resume: Continue the run in `out`; a finished run is returned unchanged.
        resume_from: Go back to this round first, or to the last before it whose checkpoint was kept; then continue.
        fresh: Delete the run in `out` first, also if it has another setting or method.
        override: `section.key=value` changes of the setting, as on the command line.
        data: The folder of the datasets.
        observer: Receives the events of the run, instead of the progress bar.
        quiet: Show no progress. Progress is shown in terminals and notebooks only.
        settings: Keys of the setting's tables: `participants=3, local_steps=5, batch_size=16`.

    Examples:
        >>> result = fedhv.run("digits", "uniform", rounds=2, participants=2)
        >>> [task.name for task in result.tasks]
        ['clear', 'faint']
    """
    seed = as_seed(seed)
    changes = changes_of(run, settings, override)
    setting, problem = resolve(what, changes, rounds, data, init)
    chosen = setting.chosen(method)
    check_applied(changes, [method])
    given = resolve_reference(reference, setting, problem)
    check_reference_taken(given, [chosen])
    check_model(problem)
    if isinstance(engine, Choice):
        choice = engine
    else:
        choice = choose_engine(engine, device, precision, problem, setting.plan(chosen, seed))
    job = Job(setting, problem, chosen, seed, choice, Path(out) if out else None, given)
    if resume_from is not None:
        check_resume_from(resume_from, job.folder, fresh)
    if given is None and needs_reference(chosen):
        calibrated_under(setting, problem, data)  # bad input is found before anything is written or deleted
    if fresh and job.folder is not None:
        remove_runs([job.folder])
    job.open(resume or resume_from is not None)
    with watched(observer, quiet, choice) as watch:
        if resume_from is not None and job.folder is not None:
            take_all_back([job.folder], resume_from, watch)
        warn_of_scales(problem, given, None if observer is None else watch)
        ready = prepare(job, watch, data)
        finished = ready if isinstance(ready, Run) else ready.execute(watch)
    if observer is None:
        finished.summary.warn()
    return with_problem(finished, what)
