"""Run folders: made for a new run, checked for an old one.

runs/digits/fedhv-seed0/
  config.toml               the resolved configuration
  reference.toml            FedHV's reference, its origin and its cost
  calibration/              the calibration runs, each a run folder
  history.jsonl             one line for every round
  checkpoint.safetensors    the state after some round (and the one before it)
  model.safetensors         the final model, as the module's state dict
  summary.json              the results; written last
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fedhv.runs.config import completed
from fedhv.runs.fingerprint import changed
from fedhv.runs.history import NAME as HISTORY
from fedhv.runs.record import CONFIG, SUMMARY
from fedhv.support import toml
from fedhv.support.errors import InputError
from fedhv.support.files import left_over, locked, make_folder, write_atomic

FINGERPRINT = "fingerprint"
"""The table of `config.toml` with the digests of data, model, tasks and method."""
UNPROTECTED = {"clip": 0.0, "noise": 0.0}
"""`run.reports` for reports without protection; the table is then left out."""


def holds_run(folder: Path) -> bool:
    """Whether a folder has a run; its configuration is written first."""
    return os.path.exists(folder / CONFIG)  # unlike Path.exists, also of names that are too long


def open_folder(folder: Path, config: dict[str, Any], resume: bool) -> None:
    """Create the folder of a new run with its `config.toml`, or check that an existing one has the same run."""
    check_folder(folder, config, resume)
    make_folder(folder)
    if holds_run(folder) and os.path.exists(folder / SUMMARY):
        return  # a finished run keeps the record of its machine
    write_atomic(folder / CONFIG, toml.write(config))


def check_folder(folder: Path, config: dict[str, Any], resume: bool) -> None:
    """Reject a folder that cannot be used for this run; nothing is written."""
    if os.path.exists(folder) and not folder.is_dir():
        raise InputError(f"{folder} should be a folder. Found a file.")
    if holds_run(folder):
        path = folder / CONFIG
        _same_run(path, toml.read(path), config)
        if not resume:
            raise InputError(
                f"{folder} already has this run. Continue it with --resume (in Python resume=True), or choose another "
                "--out."
            )
    elif os.path.exists(folder) and any(name != ".lock" and not left_over(name) for name in _entries(folder)):
        raise InputError(f"{folder} is not empty and has no run. Choose another folder with --out.")


def check_study_folder(folder: Path) -> None:
    """Reject a folder that cannot hold several runs; nothing is written.

    A report reads the folder of a run as that run and would not find the study's runs in it.
    """
    place = next(each for each in (folder, *folder.absolute().parents) if os.path.exists(each))
    if not place.is_dir():
        raise InputError(f"{place} should be a folder. Found a file.")
    if holds_run(folder):
        raise InputError(f"{folder} is the folder of one run. Choose another folder for several runs with --out.")


def _entries(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except OSError as error:
        raise InputError(f"The folder {folder} cannot be read: {error.strerror or error}.") from None


NOT_COMPARED = ("description", "references", "baselines", "record")
"""The keys of a setting that may differ between a run and its continuation.

The reference has its own file, a baseline's rates are hyper-parameters of its own runs, and what is recorded changes no
number.
"""


NAMED = 3
"""How many changed keys an error names."""

REMEDY = (
    "Choose another --out, or delete that folder; `run`, `compare` and `flower up` delete it with --fresh (in Python "
    "fresh=True)."
)
"""What to do about a folder with another run."""


def computed(setting: Any) -> Any:
    """The parts of a setting's tables that affect the results of its runs."""
    tables = completed(setting)
    if not isinstance(tables, dict):
        return tables
    return {key: value for key, value in tables.items() if key not in NOT_COMPARED}


def _same_run(path: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Raise an error if the configuration of a resumed run has changed. Its machine may change."""
    read_back = toml.read_back(new)
    was_, now_ = (
        {
            "run": {"reports": UNPROTECTED} | tables.get("run", {}),
            "setting": computed(tables.get("setting", {})),
        }
        for tables in (old, read_back)
    )
    # All of them: one key may follow from another, as the rounds of a calibration on nodes from those of the run.
    found = [each for section in was_ for each in differences(was_[section], now_[section], section)]
    if changes := [f"`{key}` was {was!r} and is now {now!r}" for key, was, now in found if key != "run.fedhv"]:
        more = f", and {len(changes) - NAMED} more keys differ" if len(changes) > NAMED else ""
        raise InputError(f"{path} is of another run: {', '.join(changes[:NAMED])}{more}. {REMEDY}")
    if FINGERPRINT not in old or FINGERPRINT not in read_back:
        return  # of an earlier version: readers warn about it
    other = changed(old[FINGERPRINT], read_back[FINGERPRINT])
    if other:
        raise InputError(f"{path.parent} has a run of another problem. Changed since: {', '.join(other)}. {REMEDY}")


def lacks_fingerprint(folder: Path) -> bool:
    """Whether a run has no fingerprint, because it was started with an earlier version."""
    return holds_run(folder) and FINGERPRINT not in toml.read(folder / CONFIG)


def remove_runs(folders: Iterable[Path]) -> None:
    """Delete the folders of runs, so that these can start again; none if a process is using one of them.

    Folders without a run are kept.
    """
    held = [folder for folder in folders if holds_run(folder)]
    for folder in held:
        for lock in folder.rglob(".lock"):  # also of a calibration, or of the parts of a baseline
            with locked(lock.parent):
                pass
    for folder in held:
        shutil.rmtree(folder)


def discard_unplayed(folder: Path) -> None:
    """Delete a run that has no round, because bad input was found in its first one."""
    history = folder / HISTORY
    if holds_run(folder) and not (history.exists() and history.stat().st_size):
        shutil.rmtree(folder)


def differences(old: Any, new: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(key, old value, new value) for every difference between two configurations."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from differences(old.get(key), new.get(key), f"{where}.{key}" if where else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        if any(any(differences(*pair)) for pair in zip(old, new, strict=True)):
            yield where, old, new
    elif old != new and not (old != old and new != new):  # NaN equals NaN
        yield where, old, new
