"""What a call has around its runs: an observer, a folder, the user's problem, a warning of uneven losses."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fedhv.engines import Choice
from fedhv.problem.problem import Problem
from fedhv.protocol.scales import differ, uneven
from fedhv.report.progress import shown
from fedhv.runs.config import Setting
from fedhv.runs.folder import check_study_folder
from fedhv.runs.record import Run
from fedhv.runs.reference import Reference
from fedhv.simulation.observer import Announcing, Observer


@contextmanager
def watched(observer: Observer | None, quiet: bool, choice: Choice | None = None) -> Iterator[Observer]:
    """The user's observer, or a progress bar, with a message about the engine first if it was chosen automatically."""
    watch = observer or shown(quiet)
    try:
        yield Announcing(watch, str(choice) if choice is not None and choice.announce else "")
    finally:
        if observer is None:
            watch.stop()


@contextmanager
def study_folder(out: str | Path | None) -> Iterator[Path]:
    """The user's folder, or a temporary one."""
    if out:
        check_study_folder(Path(out))
        yield Path(out)
    else:
        with tempfile.TemporaryDirectory(prefix="fedhv-") as temporary:
            yield Path(temporary) / "study"


def warn_of_scales(problem: Problem, given: Reference | None, watch: Observer | None) -> None:
    """One line if losses, or the losses of a given reference, differ several-fold; a warning if nobody observes."""
    names = [task.name for task in problem.tasks]
    said = uneven(problem) or ("" if given is None else differ("References", names, list(given.values)))
    if said and watch is not None:
        watch.message(said)
    elif said:
        warnings.warn(said, stacklevel=3)


def with_problem(run: Run, what: str | Setting | Problem) -> Run:
    """The run with the user's own problem, which `load_model` needs; benchmarks are found by their names."""
    return replace(run, problem=what) if isinstance(what, Problem) else run
