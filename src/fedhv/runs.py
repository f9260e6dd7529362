"""`fedhv.run`: one method on one setting, or on a problem of your own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from fedhv.calibration import calibrate
from fedhv.config import Setting
from fedhv.folders import Result, open_folder, read_result, read_summary
from fedhv.jobs import Job, with_reference
from fedhv.methods import Method
from fedhv.observer import Observer
from fedhv.problem import Problem
from fedhv.reference import Reference, read_reference
from fedhv.resolve import resolve, resolve_reference


def run(
    what: str | Setting | Problem,
    method: str | Method = "fedhv",
    *,
    seed: int = 0,
    rounds: int | None = None,
    out: str | Path | None = None,
    engine: str = "auto",
    device: str = "auto",
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
        engine: "auto" or an engine's name.
        device: "auto", "cpu" or "cuda".
        reference: For FedHV: a file, the name of one of the setting's references, or the losses themselves.
            Without one it is calibrated first.
        resume: Go on with the run in `out`; a finished one is returned as it is.
        override: `section.key=value` changes of the setting.
        data: The folder of the datasets.
        observer: Is told about progress.
    """
    setting, problem = resolve(what, override, rounds, data)
    return run_resolved(
        setting,
        problem,
        method if isinstance(method, Method) else setting.method(method),
        seed=seed,
        folder=Path(out) if out else None,
        engine=engine,
        device=device,
        reference=resolve_reference(reference, setting, problem),
        resume=resume,
        data=data,
        observer=observer,
    )


def run_resolved(
    setting: Setting,
    problem: Problem,
    method: Method,
    *,
    seed: int,
    folder: Path | None,
    engine: str,
    device: str,
    reference: Reference | None,
    resume: bool,
    data: str | None,
    observer: Observer | None,
) -> Result:
    """`run` after every name has been looked up."""
    observer = observer or Observer()
    job = Job(setting, problem, method, seed, engine, device)
    if folder is not None:
        open_folder(folder, job.config(), resume)
        if read_summary(folder) is not None:
            observer.say(f"The run in {folder} is finished already.")
            return read_result(folder)
    if not hasattr(method, "reference"):
        return job.execute(folder, resume=True, observer=observer)
    frozen = _reference(job, folder, reference, observer, data)
    ready = Job(setting, problem, with_reference(method, frozen), seed, engine, device)
    return ready.execute(folder, resume=True, reference=frozen, observer=observer)


def _reference(
    job: Job, folder: Path | None, given: Reference | None, observer: Observer, data: str | None
) -> Reference:
    """The reference of a run: the one it was started with, the given one, or a calibrated one."""
    tasks = tuple(task.name for task in job.problem.tasks)
    path = folder / "reference.toml" if folder else None
    own = getattr(job.method, "reference", None)
    if path is not None and path.exists():
        reference = read_reference(path)
    elif given is not None:
        reference = given
    elif own is not None:
        reference = Reference(own, tasks)
    else:
        reference = calibrate(
            job.setting,
            job.method,
            job.problem,
            engine=job.engine,
            device=job.device,
            data=data,
            folder=folder / "calibration" if folder else None,
            observer=observer,
        )
    reference.check(tasks)
    if path is not None:
        reference.write(path)
    return reference
