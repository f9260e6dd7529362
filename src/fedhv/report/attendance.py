"""Who took part in the rounds of a run, for the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedhv.runs.participation import NodeReply, Participants, Participation, participation
from fedhv.simulation.record import Round


@dataclass(frozen=True)
class Attendance:
    """All clients that a history names, and the last round in a sentence."""

    clients: tuple[Participation, ...]
    about: str

    def as_dict(self) -> dict[str, Any]:
        """For the page."""
        return {"about": self.about, "clients": [_row(client) for client in self.clients]}


def attendance(rounds: Sequence[Round]) -> Attendance | None:
    """From the rounds of a history; None if it does not have its participants."""
    recorded = [each for each in rounds if each.cohort is not None]
    if not recorded:
        return None
    return Attendance(tuple(participation(rounds)), _sentence(recorded[-1]))


def _row(client: Participation) -> dict[str, Any]:
    return {
        "client": client.client,
        "node": client.node or None,
        "name": client.name or None,
        "asked": client.asked,
        "taken": client.taken,
        "refused": client.refused,
        "seconds": client.seconds,
        "last": client.last_taken,
        "reason": client.reason or None,
    }


def _sentence(played: Round) -> str:
    seconds = [reply.seconds for reply in NodeReply.all_of(played) if reply.seconds is not None]
    longest = f"; the slowest answer took {max(seconds):.3g} s" if seconds else ""
    return f"Round {played.number}: {Participants.of(played)}{longest}."
