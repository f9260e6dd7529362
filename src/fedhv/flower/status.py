"""Status and stop of a federation's run, by its folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedhv.runs.participation import NodeReply, Participants
from fedhv.runs.record import read_run, run_state
from fedhv.simulation.record import Round
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
        last: The last round of the history; None without rounds.
    """

    folder: Path
    state: str
    done: int
    planned: int | None
    last: Round | None

    def lines(self) -> list[str]:
        """The status as lines for a terminal."""
        made = [f"{self.folder}: {self.state}, round {self.done} of {self.planned or '?'}"]
        if self.last is None:
            return made
        participants = Participants.of(self.last)
        if participants is not None:
            made.append(f"last round: {participants}")
        for reply in NodeReply.all_of(self.last):
            name = f" {reply.name}" if reply.name else ""
            taken = "taken" if participants is not None and reply.client in participants.taken else "left out"
            seconds = f", {reply.seconds:g} s" if reply.seconds is not None else ""
            made.append(f"  client {reply.client}: node {reply.node}{name}, {taken}{seconds}")
        made += [f"  client {each.client}: refused, {each.reason}" for each in self.last.refused]
        return made

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        about = {"folder": str(self.folder), "state": self.state, "done": self.done, "planned": self.planned}
        return {**about, "last": {} if self.last is None else self.last.as_dict()}


def status(folder: Path) -> Status:
    """The status of the run in a folder."""
    run = read_run(folder)
    state, rounds = run_state(folder), run.rounds
    return Status(folder, state, len(rounds), run.planned, rounds[-1] if rounds else None)


def stop(folder: Path) -> None:
    """Request that a running server ends after its current round."""
    read_run(folder)
    if not in_use(folder):
        raise InputError(f"Expected a running server in {folder}. Found none, so there is nothing to stop.")
    write_atomic(folder / STOP, "")


def check_stop(path: Path | None) -> None:
    """On the server: end the run if the file exists, and remove the file."""
    if path is not None and path.exists():
        discard_stop(path)
        raise Interrupted("Stopped by `fedhv flower stop`. Start the same run again to continue.")


def discard_stop(path: Path) -> None:
    """On the server: forget a request to stop. One that came in the last round would stop the run when it goes back."""
    path.unlink(missing_ok=True)
