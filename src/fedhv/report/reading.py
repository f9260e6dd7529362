"""From folders to runs: find them, read them, keep what has not changed since the last look."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedhv.report.rounds import Evaluations, Records, Rounds, from_summary, read_rounds
from fedhv.runs.config import Evaluating
from fedhv.runs.history import NAME as HISTORY
from fedhv.runs.reference import Reference, read_reference
from fedhv.support import toml
from fedhv.support.errors import FedHVError, InputError
from fedhv.support.jsonfile import read_object
from fedhv.support.numbers import is_number

CONFIG, SUMMARY, REFERENCE = "config.toml", "summary.json", "reference.toml"
NO_STUDY = ("calibration", "report", "tensorboard")
"""Folders inside a study that belong to it and hold no run of it."""


@dataclass(frozen=True)
class RunData:
    """One run as its folder tells it, finished or not.

    Attributes:
        name: Its folder, seen from the study's.
        setting: The setting's name.
        method: The method's label.
        seed: Of the run.
        config: All of `config.toml`.
        planned: How many rounds it is to have.
        finished: Whether it had them all.
        tasks: Their names, empty as long as they are unknown.
        rounds: Weights, slacks and costs.
        evaluations: Accuracies and losses.
        reference: FedHV's.
        notes: What is wrong with its files.
    """

    name: str
    setting: str
    method: str
    seed: int
    config: dict[str, Any]
    planned: int
    finished: bool
    tasks: tuple[str, ...]
    rounds: Rounds
    evaluations: Evaluations
    reference: Reference | None = None
    notes: tuple[str, ...] = ()

    @property
    def done(self) -> int:
        """The last round."""
        return self.rounds.last

    @property
    def calibration_bytes(self) -> int:
        """What the reference cost to find."""
        return self.reference.cost.traffic.total if self.reference else 0

    @property
    def calibration_seconds(self) -> float:
        """How long the reference took to find."""
        return self.reference.cost.seconds if self.reference else 0.0

    @property
    def evaluation_reference(self) -> float:
        """What its hypervolumes are held against."""
        value = table(self.config, "setting", "evaluation").get("reference")
        return float(value) if is_number(value) else Evaluating.reference

    def parameter(self, name: str, default: Any = None) -> Any:
        """A hyper-parameter of the run's method."""
        return table(self.config, "setting", "methods", self.method).get(name, default)


@dataclass
class Reader:
    """Reads the runs below some folders, again and again; a run whose files are the same is not read twice."""

    folders: Sequence[Path]
    _kept: dict[Path, tuple[tuple[Any, ...], RunData | str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.folders:
            raise InputError("Name at least one folder of runs.")
        for folder in self.folders:
            if not folder.is_dir():
                found = "a file" if folder.exists() else "no such folder"
                raise InputError(f"{folder} should be the folder of a run or of a study. Found {found}.")

    def fingerprint(self) -> tuple[Any, ...]:
        """Something that changes whenever a file that matters does."""
        return tuple((path, _stamp(path)) for _, path in self._places())

    def read(self) -> tuple[list[RunData], list[str]]:
        """The runs, and a note on every folder that holds one which cannot be read."""
        runs, notes = [], []
        for name, path in self._places():
            stamp = _stamp(path)
            if path not in self._kept or self._kept[path][0] != stamp:
                self._kept[path] = (stamp, _read(name, path))
            found = self._kept[path][1]
            if isinstance(found, str):
                notes.append(f"{name} is left out: {found}")
            else:
                runs.append(found)
        return runs, notes

    def _places(self) -> list[tuple[str, Path]]:
        """(name, folder) of every run, each folder once; several folders are told apart by their own names."""
        found: dict[Path, str] = {}
        several = len(self.folders) > 1
        for top, title in told_apart(self.folders).items():
            for path in _run_folders(top):
                inside = path.relative_to(top).as_posix()
                found.setdefault(path, title if inside == "." else f"{title}/{inside}" if several else inside)
        return [(name, path) for path, name in found.items()]


def told_apart(folders: Sequence[Path]) -> dict[Path, str]:
    """Folders and what they are called: their own names, with parents where these are the same or begin alike."""
    parts = {folder.resolve(): folder.resolve().parts[1:] for folder in folders}
    length = dict.fromkeys(parts, 1)
    while True:
        names = {folder: own[-length[folder] :] for folder, own in parts.items()}
        alike = {
            a
            for a, b in itertools.permutations(names, 2)
            if all(x == y for x, y in zip(names[a], names[b], strict=False))
        }
        short = [folder for folder in alike if length[folder] < len(parts[folder])]
        if not short:
            return {folder: "/".join(name) for folder, name in names.items()}
        for folder in short:
            length[folder] += 1


def _run_folders(top: Path) -> Iterator[Path]:
    """Every folder with a `config.toml`; what links lead to is not looked at, so nothing outside is ever read."""
    for parent, children, files in os.walk(top, followlinks=False):
        if CONFIG in files:
            children.clear()  # a run's own calibration is part of it
            yield Path(parent)
        else:
            children[:] = sorted(c for c in children if not c.startswith(".") and _may_hold_runs(Path(parent, c)))


def _may_hold_runs(folder: Path) -> bool:
    """Not the study's own calibration, report or log, unless a run was given that very name."""
    return folder.name not in NO_STUDY or (folder / CONFIG).is_file()


def _stamp(folder: Path) -> tuple[Any, ...]:
    def of(name: str) -> tuple[int, int] | None:
        try:
            status = (folder / name).stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size

    return tuple(of(name) for name in (CONFIG, HISTORY, SUMMARY, REFERENCE))


def _read(name: str, folder: Path) -> RunData | str:
    """A run, or why it is none."""
    if any((folder / file).is_symlink() for file in (CONFIG, HISTORY, SUMMARY, REFERENCE)):
        return "its files are links"
    try:
        config = toml.read(folder / CONFIG)
        run = table(config, "run")
        method, seed = run.get("method"), run.get("seed")
        if not isinstance(method, str) or not isinstance(seed, int):
            return f"{CONFIG} does not say `run.method` and `run.seed`"
        records, notes = read_rounds(folder), []
        summary, problem = _summary(folder)
        if problem:
            notes.append(problem)
        if summary is not None and records.rounds.last < summary["rounds"]:
            records = from_summary(summary, records.rounds.last)
        reference, problem = _reference(folder)
        if problem:
            notes.append(problem)
    except FedHVError as error:
        return str(error).replace(f"{folder}{os.sep}", "").rstrip(".")
    return _assemble(name, config, records, summary, reference, notes)


def _assemble(
    name: str,
    config: dict[str, Any],
    records: Records,
    summary: Mapping[str, Any] | None,
    reference: Reference | None,
    notes: list[str],
) -> RunData:
    planned = table(config, "setting", "training").get("rounds")
    if not isinstance(planned, int) or planned < 1:
        planned = records.rounds.last
    return RunData(
        name=name,
        setting=str(table(config, "setting").get("name") or "unnamed"),
        method=config["run"]["method"],
        seed=config["run"]["seed"],
        config=config,
        planned=planned,
        finished=summary is not None or 0 < planned <= records.rounds.last,
        tasks=records.tasks or (reference.tasks if reference else ()),
        rounds=records.rounds,
        evaluations=records.evaluations,
        reference=reference,
        notes=(*notes, *records.notes),
    )


def _summary(folder: Path) -> tuple[dict[str, Any] | None, str]:
    try:
        summary = read_object(folder / SUMMARY)
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError):
        return None, f"{SUMMARY} could not be read"
    tasks, rounds = summary.get("tasks"), summary.setdefault("rounds", 1)
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        return None, f"{SUMMARY} is not of a run"
    if type(rounds) is not int or not 0 < rounds < 2**53 or not isinstance(summary.get("communication", {}), dict):
        return None, f"{SUMMARY} is not of a run"
    return summary, ""


def _reference(folder: Path) -> tuple[Reference | None, str]:
    path = folder / REFERENCE
    if not path.exists():
        return None, ""
    try:
        return read_reference(path), ""
    except InputError:
        return None, f"{REFERENCE} could not be read"


def table(tables: Mapping[str, Any], *path: str) -> dict[str, Any]:
    """A nested table, empty where it is not there."""
    found: Any = tables
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, dict) else {}
