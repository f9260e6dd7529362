"""The state of a plan's runs on disk: finished, interrupted, missing, damaged, or another run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedhv.paper.plan import METHODS, PlannedRun, ReproductionPlan, StudyVariant
from fedhv.runs.folder import UNPROTECTED, computed, differences, holds_run
from fedhv.runs.record import Run, read_run
from fedhv.runs.reference import Reference
from fedhv.support.errors import InputError

RunState = Literal["finished", "interrupted", "missing", "other", "damaged"]


@dataclass(frozen=True)
class Found:
    """A planned run and its state on disk.

    Attributes:
        run: The planned run.
        folder: Its folder.
        state: "other" is a run of another configuration, "damaged" one whose files cannot be read.
        done: Finished rounds.
        note: Why it is "other" or "damaged".
        record: The record of a finished or interrupted run.
    """

    run: PlannedRun
    folder: Path
    state: RunState
    done: int = 0
    note: str = ""
    record: Run | None = None

    @property
    def finished(self) -> bool:
        """Whether the run is finished."""
        return self.state == "finished"

    @property
    def kept(self) -> Run:
        """The run on disk; an error if there is none."""
        assert self.record is not None, f"{self.folder} should hold a run of the plan. Found none"
        return self.record

    @property
    def reference(self) -> Reference | None:
        """FedHV's."""
        return self.record.reference if self.record is not None else None


def read_states(plan: ReproductionPlan, out: Path) -> list[Found]:
    """The state of every run of the plan, in the plan's order."""
    return [find(run, run.folder(out)) for run in plan.runs]


def find(run: PlannedRun, folder: Path) -> Found:
    """One run."""
    if not holds_run(folder):
        return Found(run, folder, "missing")
    try:
        record = read_run(folder)
        there, planned = (computed(each) for each in (record.table("setting"), run.config()))
        reports = record.table("run").get("reports", UNPROTECTED)
        differs = next(differences(there, planned), next(differences(reports, UNPROTECTED, "run.reports"), None))
        if differs is not None:
            key, was, now = differs
            return Found(run, folder, "other", note=f"`{key}` should be {now!r}, found {was!r}")
        done, summary, _ = len(record.rounds), record.ended, record.reference
        if summary is None:
            return Found(run, folder, "interrupted", done, record=record)
        if not record.evaluations:
            return Found(run, folder, "damaged", note="its history holds no evaluation")
        if done != summary.rounds:
            note = f"its history has {done} of the {summary.rounds} rounds of its summary"
            return Found(run, folder, "damaged", note=note)
    except InputError as error:
        return Found(run, folder, "damaged", note=str(error).rstrip("."))
    return Found(run, folder, "finished", done, record=record)


def unfinished_runs(found: Sequence[Found]) -> list[str]:
    """The unfinished runs, one line per study."""
    studies: dict[StudyVariant, list[Found]] = {}
    for each in sorted(found, key=lambda each: METHODS.index(each.run.method)):
        studies.setdefault(each.run.variant, []).append(each)
    lines = []
    for variant in dict.fromkeys(each.run.variant for each in found):
        lacking = [each for each in studies[variant] if not each.finished]
        seeds: dict[str, list[str]] = {}
        for each in lacking:
            going = f" (after round {each.done})" if each.done else ""
            seeds.setdefault(each.run.method, []).append(f"{each.run.seed}{going}")
        words = [f"{method} seed{'s' * (len(some) > 1)} {', '.join(some)}" for method, some in seeds.items()]
        if 1 < len(lacking) == len(studies[variant]) and not any(each.done for each in lacking):
            lines.append(f"{variant.name}: all {len(lacking)} runs")
        elif lacking:
            lines.append(f"{variant.name}: {'; '.join(words)}")
    return lines


def mixed_references(found: Sequence[Found]) -> list[str]:
    """One line per study whose FedHV runs have different references."""
    references: dict[str, set[tuple[float, ...]]] = {}
    for each in found:
        if each.finished and each.reference is not None:
            references.setdefault(each.run.variant.name, set()).add(each.reference.values)
    mixed = [name for name, some in references.items() if len(some) > 1]
    return [f"{name}: its runs of fedhv have different references" for name in mixed]


def other_runs(found: Sequence[Found]) -> list[str]:
    """The runs that exist but cannot be used, and why."""
    return [f"{each.run.name} is left out: {each.note}" for each in found if each.note]
