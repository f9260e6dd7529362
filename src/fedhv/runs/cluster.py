"""Runs of a study on a Ray cluster: every run is one task, which goes on where an earlier attempt has stopped.

Where the cluster's machines see the study's folder, runs are kept there, as always. Where they do not, what is there
of a run travels with its task and what has become of it travels back.
"""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhv.runs.record import SUMMARY
from fedhv.runs.summary import Summary
from fedhv.support.cores import usable_cores
from fedhv.support.errors import FedHVError, InputError, Interrupted
from fedhv.support.files import make_folder, write_atomic

if TYPE_CHECKING:
    from fedhv.runs.study import StudyRun

RETRIES = 3
"""How often a run is started again when the machine or the process that had it died."""
SECONDS_TO_STOP = 30.0
"""How long runs that are interrupted have to write their last checkpoint."""

Files = dict[str, bytes]
RemoteOutcome = Summary | FedHVError


@dataclass(frozen=True)
class Parcel:
    """What one task needs.

    Attributes:
        run: Pickled by itself: its classes can be imported only once the task has the program's path.
        path: Where the program finds modules.
        mark: By which the task recognises the study's folder.
        files: What is there of the run.
    """

    run: bytes
    path: tuple[str, ...]
    mark: Path
    files: Files


def check_ray() -> None:
    """Refuse early, with the remedy, where Ray is not installed."""
    try:
        import ray  # noqa: F401
    except ImportError:
        raise InputError("--executor ray needs Ray, which is not installed: pip install 'fedhv[ray]'.") from None


def on_ray(study: Sequence[StudyRun], jobs: int | None, tick: Callable[[], None]) -> list[RemoteOutcome]:
    """What each run came to, or why it could not go on; `tick` is called a few times a second.

    Args:
        study: The runs.
        jobs: So many at a time; by default as many as the cluster has room for.
        tick: Is called while runs go on.
    """
    import ray

    with _connected(jobs), _marked(study[0].folder.parent) as mark:
        gpus = 1 if study[0].choice.device.type == "cuda" else 0
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)(play)
        waiting = list(range(len(study)))
        running: dict[Any, int] = {}
        outcomes: dict[int, RemoteOutcome] = {}
        try:
            while waiting or running:
                while waiting and len(running) < (jobs or len(study)):
                    i = waiting.pop(0)
                    running[task.remote(_parcel(study[i], mark))] = i
                done, _ = ray.wait(list(running), timeout=0.25)
                tick()
                for reference in done:
                    i = running[reference]
                    outcomes[i] = _received(reference, study[i])
                    del running[reference]
        except KeyboardInterrupt:
            _stop({each: study[i] for each, i in running.items()})
            raise Interrupted("Stopped; every run can be resumed.") from None
        except BaseException:
            _stop({each: study[i] for each, i in running.items()})
            raise
        return [outcomes[i] for i in range(len(study))]


def play(parcel: Parcel) -> tuple[RemoteOutcome, Files]:
    """On the cluster: run, go on, or read what is there; failures are answers too."""
    sys.path += [place for place in parcel.path if place not in sys.path]
    run: StudyRun = _cloudpickle().loads(parcel.run)
    if parcel.mark.exists():
        return _attempt(run), {}
    with tempfile.TemporaryDirectory(prefix="fedhv-") as temporary:
        folder = Path(temporary) / run.folder.name
        unpack(parcel.files, folder)
        return _attempt(replace(run, folder=folder)), pack(folder)


def _attempt(run: StudyRun) -> RemoteOutcome:
    try:
        return run()
    except FedHVError as error:
        return error


def pack(folder: Path) -> Files:
    """All files of a run by their names within its folder."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def unpack(files: Files, folder: Path) -> None:
    """The files of a run, into its folder; its summary last, since it says that the run is finished."""
    for name, content in sorted(files.items(), key=lambda item: item[0] == SUMMARY):
        path = folder / name
        make_folder(path.parent)
        write_atomic(path, content)


def _parcel(run: StudyRun, mark: Path) -> Parcel:
    absolute = replace(run, folder=run.folder.absolute())
    return Parcel(_cloudpickle().dumps(absolute), tuple(sys.path), mark, pack(run.folder))


def _cloudpickle() -> Any:
    from ray import cloudpickle

    return cloudpickle


def _received(reference: Any, run: StudyRun) -> RemoteOutcome:
    """A run's outcome; bad input and an interruption end everything, the death of a machine only this run."""
    import ray

    try:
        outcome, files = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None  # a mistake of the program: it should be seen as it is
    except ray.exceptions.RayError as error:
        what = " ".join(str(error).split()).split(". ")[0]
        return FedHVError(f"{run.label}: its Ray task died {RETRIES + 1} times ({what}). The same command goes on.")
    unpack(files, run.folder)
    if isinstance(outcome, InputError | Interrupted):
        raise outcome
    result: RemoteOutcome = outcome
    return result


def _stop(tasks: Mapping[Any, StudyRun]) -> None:
    """Interrupt tasks, as Ctrl-C would, give them time to write their checkpoints, and keep what they send back."""
    import ray

    for each in tasks:
        ray.cancel(each, force=False)
    answered, _ = ray.wait(list(tasks), num_returns=len(tasks), timeout=SECONDS_TO_STOP) if tasks else ([], [])
    for each in answered:
        with suppress(ray.exceptions.RayError):  # one that had not begun, or died: it has nothing to keep
            unpack(ray.get(each)[1], tasks[each].folder)


@contextmanager
def _marked(folder: Path) -> Iterator[Path]:
    """A file by which a task recognises that it sees the study's folder."""
    make_folder(folder)
    mark = folder.absolute() / f".study-{uuid.uuid4().hex}"
    write_atomic(mark, "")
    try:
        yield mark
    finally:
        mark.unlink(missing_ok=True)


@contextmanager
def _connected(jobs: int | None) -> Iterator[None]:
    """The cluster at RAY_ADDRESS or on this machine; where there is none, one on this machine for as long."""
    import ray

    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or else it warns about its future
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        ray.init(address="auto", **quiet)
    except ConnectionError:
        if os.environ.get("RAY_ADDRESS"):
            raise FedHVError(f"There is no Ray cluster at {os.environ['RAY_ADDRESS']} (RAY_ADDRESS).") from None
        ray.init(num_cpus=jobs or usable_cores(), include_dashboard=False, **quiet)
    try:
        yield
    finally:
        ray.shutdown()
