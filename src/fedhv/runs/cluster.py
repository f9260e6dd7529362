"""Runs of a study on a Ray cluster: every run is one Ray task, which resumes an earlier attempt.

If the cluster's machines share the study's folder, runs are written there. Otherwise the files of a run are sent with
its task, and the new files are sent back.
"""

from __future__ import annotations

import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from fedhv.runs.record import SUMMARY
from fedhv.runs.summary import Summary
from fedhv.support.errors import FedHVError, InputError, Interrupted
from fedhv.support.files import make_folder, write_atomic
from fedhv.support.ray.connection import connected

if TYPE_CHECKING:
    from fedhv.runs.baseline_run import BaselineRun
    from fedhv.runs.study_run import StudyRun as MethodRun

    StudyRun: TypeAlias = MethodRun | BaselineRun

RETRIES = 3
"""How often a run is restarted if its machine or process died."""
SECONDS_TO_STOP = 30.0
"""Seconds for interrupted runs to write their last checkpoint."""

Files = dict[str, bytes]
RemoteOutcome = Summary | FedHVError


@dataclass(frozen=True)
class Parcel:
    """The data of one task.

    Attributes:
        run: Pickled by itself: its classes can be imported only once the task has the program's path.
        path: Where the program finds modules.
        mark: The file from which the task detects whether it shares the study's folder.
        files: The existing files of the run.
    """

    run: bytes
    path: tuple[str, ...]
    mark: Path
    files: Files


def on_ray(study: Sequence[StudyRun], jobs: int | None, tick: Callable[[], None]) -> list[RemoteOutcome]:
    """The result or error of each run; `tick` is called a few times a second.

    Args:
        study: The runs.
        jobs: The number of runs at a time; by default as many as fit into the cluster.
        tick: Called during the runs.
    """
    import ray

    with connected(jobs), _marked(study[0].folder.parent) as mark:
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
    """Called on the cluster: run, resume, or read a run. Failures are returned."""
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
    """Write the files of a run; the summary last, because it marks the run as finished."""
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
    """A run's outcome. Invalid input and interruptions end the study, the death of a machine only this run."""
    import ray

    try:
        outcome, files = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None  # a bug: show its own traceback
    except ray.exceptions.RayError as error:
        what = " ".join(str(error).split()).split(". ")[0]
        return FedHVError(f"{run.label}: its Ray task died {RETRIES + 1} times ({what}). Repeat the command.")
    unpack(files, run.folder)
    if isinstance(outcome, InputError | Interrupted):
        raise outcome
    result: RemoteOutcome = outcome
    return result


def _stop(tasks: Mapping[Any, StudyRun]) -> None:
    """Interrupt tasks as Ctrl-C does, wait for their checkpoints, and write the files that they send back."""
    import ray

    for each in tasks:
        ray.cancel(each, force=False)
    answered, _ = ray.wait(list(tasks), num_returns=len(tasks), timeout=SECONDS_TO_STOP) if tasks else ([], [])
    for each in answered:
        with suppress(ray.exceptions.RayError):  # a task that had not started, or died, has no files
            unpack(ray.get(each)[1], tasks[each].folder)


@contextmanager
def _marked(folder: Path) -> Iterator[Path]:
    """A file from which a task detects whether it shares the study's folder."""
    make_folder(folder)
    mark = folder.absolute() / f".study-{uuid.uuid4().hex}"
    write_atomic(mark, "")
    try:
        yield mark
    finally:
        mark.unlink(missing_ok=True)
