"""The nodes of a federation: who was asked, who answered, how long it took and what was refused, from a history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from fedhv.runs.participation import Participants, Participation, participation
from fedhv.runs.record import Run, read_run, run_state
from fedhv.simulation.record import Round
from fedhv.support.errors import InputError
from fedhv.support.files import in_use


@dataclass(frozen=True)
class Federation:
    """A run and its nodes at one moment."""

    folder: Path
    state: str
    done: int
    planned: int | None
    last: Round | None
    nodes: Sequence[Participation]

    @classmethod
    def read(cls, folder: Path) -> Federation:
        """The run in a folder as it is now."""
        run: Run = read_run(folder)
        try:
            rounds = run.rounds
        except InputError:
            if not in_use(folder):
                raise
            rounds = ()  # read while it is written
        last = rounds[-1] if rounds else None
        return cls(folder, run_state(folder), len(rounds), run.planned, last, participation(rounds))

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        about = {"folder": str(self.folder), "state": self.state, "done": self.done, "planned": self.planned}
        last = None if self.last is None else self.last.as_dict()
        return {**about, "last": last, "nodes": [asdict(node) for node in self.nodes]}

    def table(self) -> Table:
        """For a terminal."""
        made = Table(
            box=box.SIMPLE_HEAD, title=Text(f"{self.folder}: {self.state}, round {self.done} of {self.planned or '?'}")
        )
        for heading in ("client", "name", "asked", "answered", "taken", "last", "seconds", "norm", "refused"):
            made.add_column(heading, justify="left" if heading in ("name", "refused") else "right")
        for node in self.nodes:
            why = f"{node.refused}, last in round {node.reason_round}: {node.reason}" if node.refused else ""
            made.add_row(
                str(node.client),
                Text(node.name),
                str(node.asked),
                str(node.answered or node.taken),
                str(node.taken),
                _shown(node.last_taken, "d"),
                _shown(node.seconds, ".1f"),
                _shown(node.norm, ".3g"),
                Text(why),
            )
        if self.last is not None and self.last.cohort is not None:
            made.caption = f"last round: {Participants.of(self.last)}, {self.last.seconds:.1f} s"
        return made


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
