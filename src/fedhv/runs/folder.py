"""Run folders: made for a new run, checked for an old one.

runs/digits/fedhv-seed0/
  config.toml               all that fixes the run, fully resolved
  reference.toml            FedHV's reference, where it came from and what it cost
  calibration/              the uniform-weight runs behind it, each a run folder of its own
  history.jsonl             one line for every round
  checkpoint.safetensors    the state after some round (and the one before it)
  model.safetensors         the final model, as the module's state dict
  summary.json              what it came to; it is written last
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedhv.runs.config import completed
from fedhv.runs.fingerprint import changed
from fedhv.runs.record import CONFIG, SUMMARY
from fedhv.support import toml
from fedhv.support.errors import InputError
from fedhv.support.files import left_over, make_folder, write_atomic

FINGERPRINT = "fingerprint"
"""The table of `config.toml` with the digests of data, model, tasks and method."""
UNPROTECTED = {"clip": 0.0, "noise": 0.0}
"""`run.reports` where reports are sent as they are: the table is then left out."""


def holds_run(folder: Path) -> bool:
    """Whether a run was begun there: its configuration is the first that is written."""
    return os.path.exists(folder / CONFIG)  # unlike Path.exists, also of names that are too long


def open_folder(folder: Path, config: dict[str, Any], resume: bool) -> None:
    """Make the folder of a new run with its `config.toml`, or make sure that an old one is the same run."""
    check_folder(folder, config, resume)
    make_folder(folder)
    if holds_run(folder) and os.path.exists(folder / SUMMARY):
        return  # a finished run: where it was computed is on record, whatever machine looks at it later
    write_atomic(folder / CONFIG, toml.write(config))


def check_folder(folder: Path, config: dict[str, Any], resume: bool) -> None:
    """Refuse a place where this run cannot go; writes nothing."""
    if os.path.exists(folder) and not folder.is_dir():
        raise InputError(f"{folder} should be a folder. Found a file.")
    if holds_run(folder):
        path = folder / CONFIG
        _same_run(path, toml.read(path), config)
        if not resume:
            raise InputError(f"{folder} holds this run already. Go on with it by --resume, or choose another --out.")
    elif os.path.exists(folder) and any(name != ".lock" and not left_over(name) for name in _entries(folder)):
        raise InputError(f"{folder} is not empty and holds no run. Choose another folder with --out.")


def _entries(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except OSError as error:
        raise InputError(f"The folder {folder} cannot be read: {error.strerror or error}.") from None


NOT_COMPARED = ("description", "references")
"""What of a setting may differ without making another run of it: the reference that a run uses has its own file."""


def computed(setting: Any) -> Any:
    """What of a setting's tables decides what its runs compute."""
    tables = completed(setting)
    if not isinstance(tables, dict):
        return tables
    return {key: value for key, value in tables.items() if key not in NOT_COMPARED}


def _same_run(path: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    """What a run computes must not change when it is resumed; where it is computed may."""
    read_back = toml.read_text(toml.write(new))
    was_, now_ = (
        {
            "run": {"reports": UNPROTECTED} | tables.get("run", {}),
            "setting": computed(tables.get("setting", {})),
        }
        for tables in (old, read_back)
    )
    for section in ("run", "setting"):
        for key, was, now in differences(was_[section], now_[section], section):
            if key != "run.fedhv":
                raise InputError(
                    f"{path} is of another run: `{key}` was {was!r} and is now {now!r}. Choose another --out, or "
                    "replace the run with --fresh."
                )
    if FINGERPRINT not in old or FINGERPRINT not in read_back:
        return  # of an earlier version: whoever reads it says so
    other = changed(old[FINGERPRINT], read_back[FINGERPRINT])
    if other:
        raise InputError(
            f"{path.parent} holds a run of another problem. Changed since: {', '.join(other)}. Choose another --out, "
            "or replace the run with --fresh."
        )


def lacks_fingerprint(folder: Path) -> bool:
    """Whether a run was begun before runs had fingerprints, so that nobody can tell what problem it is of."""
    return holds_run(folder) and FINGERPRINT not in toml.read(folder / CONFIG)


def remove_run(folder: Path) -> None:
    """Delete a run, so that it can start anew; whatever else a folder holds stays."""
    if holds_run(folder):
        shutil.rmtree(folder)


def differences(old: Any, new: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(key, what it was, what it is) wherever two configurations differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from differences(old.get(key), new.get(key), f"{where}.{key}" if where else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        if any(any(differences(*pair)) for pair in zip(old, new, strict=True)):
            yield where, old, new
    elif old != new and not (old != old and new != new):  # nan is what it was
        yield where, old, new
