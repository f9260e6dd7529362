"""Who took part in the rounds of a run: who was asked, whose answers were taken, how long they took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fedhv.simulation.record import Round


@dataclass
class Attended:
    """One client over all rounds.

    Attributes:
        client: Its number.
        node: The node that answered for it last, on Flower.
        name: The node's name, where it has one.
        asked: In how many rounds it was asked.
        taken: In how many its answer counted.
        refused: How often its answer was left out.
        seconds: How long each of its answers took.
        last: The last round in which its answer counted.
        reason: Why it was left out last.
    """

    client: int
    node: str | None = None
    name: str | None = None
    asked: int = 0
    taken: int = 0
    refused: int = 0
    seconds: list[float] = field(default_factory=list)
    last: int | None = None
    reason: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """For the page: the mean of the seconds."""
        mean = round(sum(self.seconds) / len(self.seconds), 3) if self.seconds else None
        return vars(self) | {"seconds": mean}


@dataclass(frozen=True)
class Attendance:
    """All clients that were ever asked, and the last round in a sentence."""

    clients: tuple[Attended, ...]
    about: str


def attendance(rounds: Sequence[Round]) -> Attendance | None:
    """From the rounds of a history; None where it does not say who took part."""
    noted = [each for each in rounds if each.cohort is not None]
    if not noted:
        return None
    found: dict[int, Attended] = {}

    def of(client: Any) -> Attended:
        return found.setdefault(int(client), Attended(int(client)))

    for each in noted:
        cohort = each.cohort or {}
        for client in dict.fromkeys(_numbers(cohort.get("asked"))):
            of(client).asked += 1
        for client in _numbers(cohort.get("taken")):
            of(client).taken += 1
            of(client).last = each.number
        for refusal in each.refused:
            of(refusal.client).refused += 1
            of(refusal.client).reason = refusal.reason
        for node in _nodes(each):
            one = of(node["client"])
            one.node, one.name = str(node.get("node", "")) or one.node, node.get("name", one.name)
            if isinstance(node.get("seconds"), int | float):
                one.seconds.append(float(node["seconds"]))
    return Attendance(tuple(found[client] for client in sorted(found)), _last(noted[-1]))


def _last(round: Round) -> str:
    cohort = round.cohort or {}
    asked, taken = set(_numbers(cohort.get("asked"))), set(_numbers(cohort.get("taken")))
    times = [float(node["seconds"]) for node in _nodes(round) if isinstance(node.get("seconds"), int | float)]
    longest = f"; the slowest answer took {max(times):.3g} s" if times else ""
    return (
        f"Round {round.number}: {cohort.get('present', len(asked))} present, {len(asked)} asked, "
        f"{len(taken)} taken{longest}."
    )


def _nodes(round: Round) -> list[dict[str, Any]]:
    nodes = round.extra.get("nodes")
    return [n for n in nodes if isinstance(n, dict) and "client" in n] if isinstance(nodes, list) else []


def _numbers(values: Any) -> list[int]:
    return [int(each) for each in values] if isinstance(values, list | tuple) else []
