"""Going back: a run that went wrong continues from a round whose checkpoint was kept."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fedhv.runs.checkpoint import go_back, round_to_go_back_to
from fedhv.runs.folder import holds_run
from fedhv.runs.history import read_history
from fedhv.runs.record import MODEL, SUMMARY, read_run
from fedhv.simulation.observer import Observer
from fedhv.support.errors import InputError
from fedhv.support.files import locked


def take_back(folder: Path, round: int) -> int:
    """Take the run in a folder back to a round, or to the last before it that was kept; returns that round.

    The same run, resumed, continues there. The lines of later rounds leave the history when it is resumed.
    """
    if round > (done := len(read_run(folder).rounds)):
        raise InputError(f"`--resume-from` should be at most {done}, the last round of {folder}. Found {round}.")
    with locked(folder):  # not under a running process
        back = go_back(folder, round)
        for name in (SUMMARY, MODEL):  # of a run that had ended
            (folder / name).unlink(missing_ok=True)
    return back


def check_resume_from(round: int, folder: Path | None, fresh: bool) -> None:
    """Raise if there is nothing to go back in."""
    if round < 1:
        raise InputError(f"`--resume-from` should be a round from 1. Found {round}.")
    if fresh:
        raise InputError("`--resume-from` continues runs and `--fresh` deletes them. Leave out one of them.")
    if folder is None or not folder.is_dir():
        raise InputError(
            f"`--resume-from` needs a folder with a run. Found {folder or 'no folder'}; name it with --out."
        )


def take_all_back(folders: Iterable[Path], round: int, observer: Observer) -> None:
    """Take every run that has gone further than a round back to it; all of them or none."""
    further = [folder for folder in folders if holds_run(folder) and len(read_history(folder)) > round]
    for folder in further:
        round_to_go_back_to(folder, round)  # raises before anything has changed
    for folder in further:
        observer.message(back_message(folder, round, take_back(folder, round)))


def back_message(folder: Path, round: int, back: int) -> str:
    """What has happened."""
    kept = "" if back == round else f" (round {round} was not kept)"
    return f"The run in {folder} continues after round {back}{kept}."
