"""The nodes of a federation: who was asked, who answered, how long it took and what was refused, from a history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from fedhv.runs.record import Run, read_run, read_summary
from fedhv.simulation.record import Round
from fedhv.support.errors import InputError
from fedhv.support.files import in_use


@dataclass
class Node:
    """One client of a federation over the rounds of a run; in the simulator it has no node, name or seconds.

    Attributes:
        client: The number of the client, which is its partition.
        name: The name that the node has given itself.
        node: The id of its node.
        asked: How many requests for a round it received, all attempts counted.
        answered: In how many rounds it replied.
        taken: In how many rounds its reply was used.
        refused: How many of its replies were missing or refused.
        last_taken: The last round in which its reply was used.
        seconds: The mean time from request to reply.
        last_seconds: The same in the last round that it answered.
        norm: The norm of the last update that was used.
        reason: Why it was last left out.
        reason_round: In which round that was.
    """

    client: int
    name: str = ""
    node: str = ""
    asked: int = 0
    answered: int = 0
    taken: int = 0
    refused: int = 0
    last_taken: int | None = None
    seconds: float | None = None
    last_seconds: float | None = None
    norm: float | None = None
    reason: str = ""
    reason_round: int | None = None


def nodes_of(rounds: Iterable[Round]) -> list[Node]:
    """Every client that a history names, in ascending order."""
    found: dict[int, Node] = {}
    total: dict[int, float] = {}

    def node(client: int) -> Node:
        return found.setdefault(client, Node(client))

    for played in rounds:
        cohort = played.cohort or {}
        for client in cohort.get("asked", ()):
            node(client).asked += 1
        for i, client in enumerate(cohort.get("taken", ())):
            each = node(client)
            each.taken, each.last_taken = each.taken + 1, played.number
            norms = cohort.get("norms", ())
            each.norm = norms[i] if i < len(norms) else each.norm
        for about in played.extra.get("nodes", ()):
            each = node(about["client"])
            each.answered, each.node = each.answered + 1, about["node"]
            each.name = about.get("name", each.name)
            if (seconds := about.get("seconds")) is not None:
                total[each.client] = total.get(each.client, 0.0) + seconds
                each.last_seconds, each.seconds = seconds, round(total[each.client] / each.answered, 3)
        for refusal in played.refused:
            each = node(refusal.client)
            each.refused, each.reason, each.reason_round = each.refused + 1, refusal.reason, played.number
    return [found[client] for client in sorted(found)]


@dataclass(frozen=True)
class Federation:
    """A run and its nodes at one moment."""

    folder: Path
    state: str
    done: int
    planned: int | None
    last: Round | None
    nodes: Sequence[Node]

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
        state = "running" if in_use(folder) else "finished" if read_summary(folder) is not None else "stopped"
        return cls(folder, state, len(rounds), run.planned, rounds[-1] if rounds else None, nodes_of(rounds))

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
            cohort = self.last.cohort
            made.caption = (
                f"last round: {cohort['present']} present, {len(cohort['asked'])} asked, {len(cohort['taken'])} taken, "
                f"{self.last.seconds:.1f} s"
            )
        return made


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
