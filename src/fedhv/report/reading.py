"""Finds and reads the runs below folders; unchanged runs are not read again."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from fedhv.problem.skew import Skew
from fedhv.report.attendance import Attendance
from fedhv.report.choices import FILES as CHOICES
from fedhv.report.choices import Role, read_roles
from fedhv.report.incidents import Incidents
from fedhv.report.rounds import Evaluations, Rounds, from_summary, read_rounds
from fedhv.runs.history import NAME as HISTORY
from fedhv.runs.record import CONFIG, REFERENCE, SUMMARY, Run, read_run
from fedhv.runs.reference import Reference
from fedhv.runs.summary import Summary
from fedhv.support.errors import FedHVError, InputError

FILES = (CONFIG, HISTORY, SUMMARY, REFERENCE)
T = TypeVar("T")
NO_STUDY = ("calibration", "report", "tensorboard")
"""Folders inside a study that hold none of its runs."""


@dataclass(frozen=True)
class RunData:
    """One run, finished or not, with its rounds as arrays.

    Attributes:
        name: Its folder, relative to the study's.
        record: The content of its folder.
        finished: Whether all its rounds are done.
        summary: Its results; None if it has not finished, or they cannot be read, which `notes` say.
        tasks: The tasks' names; empty as long as they are unknown.
        rounds: Weights, slacks and costs.
        evaluations: Accuracies and losses.
        reference: FedHV's reference, if it could be read.
        notes: Errors in its files.
        incidents: Floor hits, refused replies and the like.
        attendance: Who took part, where the history has it.
        over_clients: Scores at the clients, where they evaluate models.
        client_labels: For every client its number of examples, then of labels per task; empty like `labels`.
        role: What it is in its study: one of those compared, chosen, only tried, or a point of a front.
        scored: What the accuracy of every task counts.
        clock_is_shared: Whether other runs were computed with it, so that its times cannot be compared.
        clock_is_recorded: Whether its files say that, and what compilation took; earlier versions recorded neither.
        labels: The number of labelled training examples per task; empty if all are labelled or it is unknown.
        skew: The label skew over clients per task; empty if it is unknown.
    """

    name: str
    record: Run
    finished: bool
    tasks: tuple[str, ...]
    rounds: Rounds
    evaluations: Evaluations
    reference: Reference | None = None
    summary: Summary | None = None
    notes: tuple[str, ...] = ()
    labels: tuple[int, ...] = ()
    skew: tuple[Skew, ...] = ()
    incidents: Incidents = field(default_factory=Incidents)
    attendance: Attendance | None = None
    over_clients: tuple[dict[str, Any], ...] = ()
    client_labels: tuple[tuple[int, ...], ...] = ()
    role: Role = field(default_factory=Role)
    scored: tuple[str, ...] = ()
    clock_is_shared: bool = False
    clock_is_recorded: bool = False

    @property
    def examples(self) -> int | None:
        """The number of training examples of all clients, where it is known."""
        return sum(row[0] for row in self.client_labels) or None

    @property
    def setting(self) -> str:
        """The setting's name."""
        return self.record.setting

    @property
    def method(self) -> str:
        """The method's label."""
        return self.record.method

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.record.seed

    @property
    def planned(self) -> int:
        """The planned number of rounds."""
        return self.record.planned or self.done

    @property
    def done(self) -> int:
        """The last round."""
        return self.rounds.last

    @property
    def calibration_bytes(self) -> int:
        """The bytes of the calibration."""
        return self.reference.cost.traffic.total if self.reference else 0

    @property
    def calibration_seconds(self) -> float:
        """The seconds of the calibration."""
        return self.reference.cost.seconds if self.reference else 0.0


@dataclass
class Reader:
    """Reads the runs below some folders, repeatedly. A run whose files have not changed is not read again."""

    folders: Sequence[Path]
    _kept: dict[Path, tuple[tuple[Any, ...], RunData | str]] = field(default_factory=dict)
    _closed: dict[str, str] = field(default_factory=dict)
    """Folders that cannot be listed, each with the reason."""

    def __post_init__(self) -> None:
        if not self.folders:
            raise InputError("Name at least one folder of runs.")
        for folder in self.folders:
            if not folder.is_dir():
                found = "a file" if folder.exists() else "no such folder"
                raise InputError(f"{folder} should be the folder of a run or of a study. Found {found}.")

    def fingerprint(self) -> tuple[Any, ...]:
        """A value that changes whenever a file of a run changes."""
        places = self._places()
        studies = {study for _, _, study in places if study is not None}
        runs = tuple((path, _stamp(path, FILES)) for _, path, _ in places)
        return (*runs, *((study, _stamp(study, CHOICES)) for study in sorted(studies)))

    def read(self) -> tuple[list[RunData], list[str]]:
        """The runs, and a note on every run that cannot be read."""
        places = self._places()
        runs: list[RunData] = []
        notes = [f"{folder} could not be read: {why}" for folder, why in self._closed.items()]
        roles: dict[Path, dict[str, Role]] = {}
        for name, path, study in places:
            stamp = _stamp(path, FILES)
            if path not in self._kept or self._kept[path][0] != stamp:
                self._kept[path] = (stamp, _read(name, path))
            found = self._kept[path][1]
            if isinstance(found, str):
                notes.append(f"{name} is left out: {found}")
                continue
            if study is not None and study not in roles:
                roles[study], damaged = read_roles(study)
                notes += damaged
            runs.append(found if study is None else replace(found, role=roles[study].get(path.parent.name, Role())))
        return runs, notes

    def _places(self) -> list[tuple[str, Path, Path | None]]:
        """(name, folder, study) of every run, each folder once; with several folders, names start with the folder's.

        The study is that of a variant's runs; none where it is above the given folders.
        """
        found: dict[Path, tuple[str, Path | None]] = {}
        several = len(self.folders) > 1
        self._closed.clear()
        for top, title in unique_titles(self.folders).items():
            for path in _run_folders(top, self._closed):
                inside = path.relative_to(top).as_posix()
                name = title if inside == "." else f"{title}/{inside}" if several else inside
                study = path.parent.parent
                found.setdefault(path, (name, study if study.is_relative_to(top) else None))
        return [(name, path, study) for path, (name, study) in found.items()]


def unique_titles(folders: Sequence[Path]) -> dict[Path, str]:
    """A title per folder: its name, with parents if two names are equal or one starts with the other."""
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


def _run_folders(top: Path, closed: dict[str, str]) -> Iterator[Path]:
    """Every folder with a `config.toml`. Links are not followed, so nothing outside is read.

    `closed` receives the folders that cannot be listed: a run in one of them would be missing without a word.
    """

    def failed(error: OSError) -> None:
        closed[Path(error.filename).relative_to(top.parent).as_posix()] = error.strerror or str(error)

    for parent, children, files in os.walk(top, onerror=failed, followlinks=False):
        if CONFIG in files:
            children.clear()  # the calibration of a run is not a run of the study
            yield Path(parent)
        else:
            children[:] = sorted(c for c in children if not c.startswith(".") and _may_hold_runs(Path(parent, c)))


def _may_hold_runs(folder: Path) -> bool:
    """False for the study's calibration, report and log, unless a run has that name."""
    return folder.name not in NO_STUDY or (folder / CONFIG).is_file()


def _stamp(folder: Path, files: Sequence[str]) -> tuple[Any, ...]:
    def of(name: str) -> tuple[int, int] | None:
        try:
            status = (folder / name).stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size

    return tuple(of(name) for name in files)


def _read(name: str, folder: Path) -> RunData | str:
    """A run, or the reason why it cannot be used."""
    if any((folder / file).is_symlink() for file in FILES):
        return "its files are links"
    try:
        run = read_run(folder)
    except FedHVError as error:
        return str(error).replace(f"{folder}{os.sep}", "").rstrip(".")
    notes: list[str] = []
    records = read_rounds(folder)
    summary = _read_or_note(SUMMARY, lambda: run.ended, notes)
    if summary is not None and records.rounds.last < summary.rounds:
        records = from_summary(summary, records.rounds.last, (folder / HISTORY).exists())
    reference = _read_or_note(REFERENCE, lambda: run.reference, notes)
    return RunData(
        name=name,
        record=run,
        finished=summary is not None or 0 < (run.planned or records.rounds.last) <= records.rounds.last,
        tasks=records.tasks or (reference.tasks if reference else ()),
        rounds=records.rounds,
        evaluations=records.evaluations,
        reference=reference,
        summary=summary,
        notes=(*notes, *records.notes),
        labels=() if summary is None else summary.labels,
        skew=() if summary is None else summary.skew,
        incidents=records.incidents,
        attendance=records.attendance,
        over_clients=records.over_clients,
        client_labels=() if summary is None else summary.client_labels,
        scored=records.scored,
        clock_is_shared=_shares_clock(run, summary, records.rounds),
        clock_is_recorded=_has_clock(summary, records.rounds),
    )


def _shares_clock(run: Run, summary: Summary | None, rounds: Rounds) -> bool:
    """As the summary or the history says; of an unfinished run of the stacked engine it is assumed."""
    if bool((rounds.shared > 1).any()):
        return True
    return summary.clock_is_shared if summary is not None else run.machine.get("engine") == "stacked"


def _has_clock(summary: Summary | None, rounds: Rounds) -> bool:
    """Whether a summary or a round says how the time was shared or what compilation took."""
    told = bool((rounds.shared > 1).any() or (rounds.warm_up > 0).any())
    return told or (summary is not None and summary.shared_clock is not None)


def _read_or_note(name: str, read: Callable[[], T | None], notes: list[str]) -> T | None:
    """The content of a file; None and a note if it cannot be read."""
    try:
        return read()
    except InputError:
        notes.append(f"{name} could not be read")
        return None
