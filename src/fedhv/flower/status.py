"""Status and stop of a federation's run, by its folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedhv.runs.record import read_run, read_summary
from fedhv.support.errors import InputError, Interrupted
from fedhv.support.files import in_use, write_atomic

STOP = "stop"
"""A file with this name in a run's folder ends the run after the current round."""


@dataclass(frozen=True)
class Status:
    """The status of a run.

    Attributes:
        folder: The run's folder.
        state: "running", "finished" or "stopped".
        done: Finished rounds.
        planned: All rounds.
        last: The last round of the history; empty without rounds.
    """

    folder: Path
    state: str
    done: int
    planned: int | None
    last: dict[str, Any]

    def lines(self) -> list[str]:
        """The status as lines for a terminal."""
        made = [f"{self.folder}: {self.state}, round {self.done} of {self.planned or '?'}"]
        cohort = self.last.get("cohort")
        if cohort:
            made.append(
                f"last round: {cohort['present']} present, {len(cohort['asked'])} asked, {len(cohort['taken'])} taken"
            )
        for node in self.last.get("nodes", ()):
            name = f" {node['name']}" if "name" in node else ""
            taken = "taken" if cohort and node["client"] in cohort["taken"] else "left out"
            seconds = f", {node['seconds']:g} s" if "seconds" in node else ""
            made.append(f"  client {node['client']}: node {node['node']}{name}, {taken}{seconds}")
        made += [f"  client {each['client']}: refused, {each['reason']}" for each in self.last.get("refused", ())]
        return made


def status(folder: Path) -> Status:
    """The status of the run in a folder."""
    run = read_run(folder)
    state = "running" if in_use(folder) else "finished" if read_summary(folder) is not None else "stopped"
    rounds = run.rounds
    return Status(folder, state, len(rounds), run.planned, rounds[-1].as_dict() if rounds else {})


def stop(folder: Path) -> None:
    """Request that a running server ends after its current round."""
    read_run(folder)
    if not in_use(folder):
        raise InputError(f"Expected a running server in {folder}. Found none, so there is nothing to stop.")
    write_atomic(folder / STOP, "")


def check_stop(path: Path | None) -> None:
    """On the server: end the run if the file exists, and remove the file."""
    if path is not None and path.exists():
        path.unlink(missing_ok=True)
        raise Interrupted("Stopped by `fedhv flower stop`. Start the same run again to continue.")
