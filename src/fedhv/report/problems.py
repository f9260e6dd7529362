"""Whether runs of one setting belong to one problem, by the fingerprints in their folders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedhv.report.reading import RunData
from fedhv.runs.fingerprint import WHAT
from fedhv.runs.folder import FINGERPRINT

APART = ("inputs", "targets", "test", "clients", "model", "preparation")
"""Runs that differ in one of these are never in one table."""
CODE = ("tasks", "method", "numerics")
"""Differences of code, which may be those of two versions of one program: they are said."""
ON_NODES = ("inputs", "targets", "clients")
"""What the server of a federation does not have."""
DRAWN = ("participants", "average", "select")
"""The keys of `[federation]` that do not change which examples a client has."""


@dataclass
class Problems:
    """The problems of the runs of one setting with the same tasks; each keeps its runs.

    A fingerprint belongs to what a setting says about examples and model: runs whose settings differ in that, such as
    those of an ablation of the number of clients, have different fingerprints for a reason that is shown.
    """

    tasks: tuple[str, ...]
    runs: list[RunData] = field(default_factory=list)
    _known: dict[str, dict[str, Any]] = field(default_factory=dict)

    def differs(self, run: RunData) -> list[str]:
        """What of a run is another problem's, in words."""
        known = self._known.get(_says(run), {})
        found = digests(run)
        return [WHAT[name] for name in APART if name in found and known.get(name, found[name]) != found[name]]

    def add(self, run: RunData) -> None:
        """Take a run of this problem."""
        self.runs.append(run)
        known = self._known.setdefault(_says(run), {})
        for name, value in digests(run).items():
            known.setdefault(name, value)


def digests(run: RunData) -> Mapping[str, Any]:
    """The digests of a run that are those of its problem; empty for runs of versions without fingerprints."""
    found = run.record.table(FINGERPRINT)
    if run.record.machine.get("engine") == "flower":
        return {name: value for name, value in found.items() if name not in ON_NODES}
    return found


def code_notes(groups: Sequence[tuple[str, Sequence[RunData]]]) -> Iterator[str]:
    """What differs in the code of runs that are compared; `groups` are the labels of rows with their runs."""
    runs = [run for _, own in groups for run in own]
    for name in ("tasks", "numerics"):
        if _distinct(name, runs):
            yield f"runs that are compared differ in {WHAT[name]}"
    for label, own in groups:
        if _distinct("method", own):
            yield f"runs of {label} differ in {WHAT['method']}"


def _distinct(name: str, runs: Sequence[RunData]) -> bool:
    """Whether runs of the same settings have different digests of this name."""
    first: dict[str, Any] = {}
    found = [(_says(run), digests(run)[name]) for run in runs if name in digests(run)]
    return any(first.setdefault(says, value) != value for says, value in found)


def _says(run: RunData) -> str:
    """What a setting says about the examples of clients, the test examples, the model and the tasks."""
    federation, training, evaluation = (
        run.record.table("setting", name) for name in ("federation", "training", "evaluation")
    )
    divided = sorted((key, repr(value)) for key, value in federation.items() if key not in DRAWN)
    return repr((divided, training.get("norm"), training.get("scale"), evaluation.get("on")))
