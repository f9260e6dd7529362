"""Who took part in the rounds of a run, from its history, for the page, `fedhv watch` and `fedhv flower status`.

A client that was asked in two attempts at a round was asked in one round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fedhv.simulation.record import Round


@dataclass(frozen=True)
class Participants:
    """The participants of one round, each client once, over all its attempts.

    Attributes:
        present: How many clients were available.
        asked: The clients that received a request.
        taken: The clients whose replies were used.
    """

    present: int
    asked: tuple[int, ...]
    taken: tuple[int, ...]

    @classmethod
    def of(cls, played: Round) -> Participants | None:
        """From a round of a history; None if it does not have its participants."""
        if played.cohort is None:
            return None
        asked, taken = (tuple(dict.fromkeys(_numbers(played.cohort.get(key)))) for key in ("asked", "taken"))
        return cls(int(played.cohort.get("present", len(asked))), asked, taken)

    def __str__(self) -> str:
        return f"{self.present} present, {len(self.asked)} asked, {len(self.taken)} taken"


@dataclass(frozen=True)
class NodeReply:
    """A node that replied in a round; in the simulator there are none.

    Attributes:
        client: The client, which is the node's partition.
        node: The id of the node.
        name: The name that the node has given itself.
        seconds: From request to reply, all requests of the round together.
    """

    client: int
    node: str
    name: str
    seconds: float | None

    @classmethod
    def all_of(cls, played: Round) -> Iterator[NodeReply]:
        """The nodes that replied in a round of a history."""
        found = played.extra.get("nodes")
        for about in found if isinstance(found, list | tuple) else ():
            if isinstance(about, dict) and "client" in about:
                seconds = about.get("seconds")
                taken = float(seconds) if isinstance(seconds, int | float) else None
                yield cls(int(about["client"]), str(about.get("node", "")), str(about.get("name", "")), taken)


@dataclass
class Participation:
    """One client over the rounds of a run.

    Attributes:
        client: The number of the client.
        name: The name of its node, if it has one.
        node: The id of its node.
        asked: In how many rounds it was asked.
        answered: In how many rounds its node replied.
        taken: In how many rounds its reply was used.
        refused: In how many rounds a reply of it was missing or refused.
        last_taken: The last round in which its reply was used.
        seconds: The mean seconds from request to reply.
        last_seconds: The same in the last round that it answered.
        norm: The norm of its last update that was used.
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


def participation(rounds: Iterable[Round]) -> list[Participation]:
    """Every client that a history names, in ascending order."""
    found: dict[int, Participation] = {}
    seconds: dict[int, list[float]] = {}

    def of(client: int) -> Participation:
        return found.setdefault(client, Participation(client))

    for played in rounds:
        participants = Participants.of(played)
        for client in participants.asked if participants else ():
            of(client).asked += 1
        for client in participants.taken if participants else ():
            of(client).taken += 1
            of(client).last_taken = played.number
        cohort = played.cohort or {}
        for client, norm in zip(_numbers(cohort.get("taken")), cohort.get("norms", ()), strict=False):
            of(client).norm = norm
        for reply in NodeReply.all_of(played):
            each = of(reply.client)
            each.answered += 1
            each.node, each.name = reply.node or each.node, reply.name or each.name
            if reply.seconds is not None:
                measured = seconds.setdefault(reply.client, [])
                measured.append(reply.seconds)
                each.last_seconds, each.seconds = reply.seconds, round(sum(measured) / len(measured), 3)
        for client in dict.fromkeys(refusal.client for refusal in played.refused):
            of(client).refused += 1
        for refusal in played.refused:
            of(refusal.client).reason, of(refusal.client).reason_round = refusal.reason, played.number
    return [found[client] for client in sorted(found)]


def _numbers(values: Any) -> list[int]:
    return [int(each) for each in values] if isinstance(values, list | tuple) else []
