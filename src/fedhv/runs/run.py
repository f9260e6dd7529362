"""`fedhv.run`: one method on one setting, or on a problem of your own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from fedhv.engines import Choice, choose_engine
from fedhv.engines.rehearsal import rehearse
from fedhv.methods.base import Method, needs_reference, reference_of, takes_reference
from fedhv.problem.problem import Problem
from fedhv.runs.calibration import calibrate, calibrated_under
from fedhv.runs.checkpoint import has_checkpoint
from fedhv.runs.config import Setting
from fedhv.runs.folder import MODEL, Result, read_result, read_summary
from fedhv.runs.job import Job
from fedhv.runs.reference import Reference, read_reference
from fedhv.runs.reference_watch import warn_of
from fedhv.runs.resolve import resolve, resolve_reference
from fedhv.simulation.observer import Announcing, Observer
from fedhv.support.errors import InputError
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
    reference: str | Path | Reference | Sequence[float] | None = None,
    resume: bool = False,
    override: Iterable[str] = (),
    data: str | None = None,
    observer: Observer | None = None,
) -> Result:
    """One method on one setting, or on a problem of your own.

    Args:
        what: A setting's name or TOML file, a `Setting`, or a `Problem`.
        method: A method's name, "package.module:Class", or a `Method`.
        seed: Of everything random in the run.
        rounds: Instead of the setting's.
        out: The run's folder; nothing is written without one.
        engine: "auto", an engine's name, or a `Choice` that makes an engine of its own.
        device: "auto", "cpu" or "cuda".
        precision: "auto", "float32", "tf32" or "bf16".
        reference: For FedHV: a file, the name of one of the setting's references, or the losses themselves.
            Without one it is calibrated first.
        resume: Go on with the run in `out`; a finished one is returned as it is.
        override: `section.key=value` changes of the setting.
        data: The folder of the datasets.
        observer: Is told about progress.
    """
    seed = as_seed(seed)
    setting, problem = resolve(what, override, rounds, data)
    chosen = setting.chosen(method)
    given = resolve_reference(reference, setting, problem)
    if given is not None and not takes_reference(chosen):
        raise InputError(f"Method '{chosen.label}' takes no reference. Leave out --reference.")
    rehearse(problem)
    if isinstance(engine, Choice):
        choice = engine
    else:
        choice = choose_engine(engine, device, precision, problem, setting.plan(chosen, seed))
    job = Job(setting, problem, chosen, seed, choice, Path(out) if out else None, given)
    if given is None and needs_reference(chosen):
        calibrated_under(setting, problem, data)  # bad input is found before anything is written
    job.open(resume)
    watching = Announcing(observer or Observer(), str(choice) if choice.worth_saying else "")
    ready = prepare(job, watching, data)
    result = ready if isinstance(ready, Result) else ready.execute(watching)
    if observer is None:
        warn_of(result.summary)
    return result


def prepare(job: Job, observer: Observer, data: str | None = None) -> Job | Result:
    """The job with its reference found, or its result if it is finished already."""
    path = job.folder / "reference.toml" if job.folder else None
    given = job.reference.values if job.reference is not None else reference_of(job.method)
    if given is not None and path is not None and path.exists() and read_reference(path).values != given:
        raise InputError(f"{path} holds another reference than the given one. Choose another --out.")
    if job.folder is not None and read_summary(job.folder) is not None:
        if (job.folder / MODEL).exists() or not has_checkpoint(job.folder):
            observer.say(f"The run in {job.folder} is finished already.")
            return read_result(job.folder)
        observer.say(f"The model of the finished run in {job.folder} is missing: it is written again.")
    if not takes_reference(job.method):
        return replace(job, reference=None)
    tasks = tuple(task.name for task in job.problem.tasks)
    if path is not None and path.exists():
        reference = read_reference(path)
    elif job.reference is not None:
        reference = job.reference
    elif given is not None:
        reference = Reference(given, tasks)
    else:
        observer.say("No reference was given.")
        place = job.folder / "calibration" if job.folder else None
        reference = calibrate(
            job.setting, job.method, job.problem, choice=job.choice, data=data, folder=place, observer=observer
        )
    reference.check(tasks)
    if path is not None:
        reference.write(path)
    return job.with_reference(reference)
