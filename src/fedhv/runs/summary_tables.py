"""The tables of a summary: the communication, the replies that were left out, the findings of the reference watch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fedhv.support.jsonfile import Fields


@dataclass(frozen=True)
class Communication:
    """Bytes that a run sent; `total_bytes` includes the calibration.

    `auxiliary_scalars_per_client_round` is what the method adds to a plain exchange of the model, from the rounds in
    which every client answered.
    """

    downlink_bytes: int
    uplink_bytes: int
    calibration_bytes: int
    total_bytes: int
    auxiliary_scalars_per_client_round: float | None = None

    @classmethod
    def read(cls, found: Fields) -> Communication:
        """From the JSON object."""
        key = "auxiliary_scalars_per_client_round"
        return cls(
            downlink_bytes=found.whole("downlink_bytes"),
            uplink_bytes=found.whole("uplink_bytes"),
            calibration_bytes=found.whole("calibration_bytes"),
            total_bytes=found.whole("total_bytes"),
            auxiliary_scalars_per_client_round=found.number(key) if key in found else None,
        )


@dataclass(frozen=True)
class Refused:
    """Replies that the server left out: how many, in how many rounds, and why."""

    replies: int
    rounds: int
    repeated_rounds: int
    reasons: Mapping[str, int]

    @classmethod
    def read(cls, found: Fields) -> Refused:
        """From the JSON object."""
        reasons = found.object("reasons")
        counts = {reason: reasons.whole(reason) for reason in reasons.but(())}
        return cls(found.whole("replies"), found.whole("rounds"), found.whole("repeated_rounds"), counts)

    @property
    def text(self) -> str:
        """A note, without the final period."""
        reasons = ", ".join(f"{count} × {reason}" for reason, count in self.reasons.items())
        again = f", {self.repeated_rounds} rounds repeated" if self.repeated_rounds else ""
        return f"{self.replies} replies left out in {self.rounds} rounds ({reasons}){again}"


@dataclass(frozen=True)
class Raised:
    """A reference that was raised in some round."""

    round: int
    reference: tuple[float, ...]


@dataclass(frozen=True)
class Watched:
    """Rounds in which the reference watch found too little slack."""

    rounds: int
    first_round: int
    lowest_slack: float
    raised: tuple[Raised, ...]

    @classmethod
    def read(cls, found: Fields) -> Watched:
        """From the JSON object."""
        raised = tuple(Raised(each.whole("round"), each.numbers("reference")) for each in found.objects("raised"))
        return cls(found.whole("rounds"), found.whole("first_round"), found.number("lowest_slack"), raised)

    def as_dict(self) -> dict[str, Any]:
        """For a JSON file."""
        raised = [{"round": each.round, "reference": list(each.reference)} for each in self.raised]
        return asdict(self) | {"raised": raised}

    @property
    def text(self) -> str:
        """A note on the reference, without the final period."""
        raised = ", ".join(str(each.round) for each in self.raised)
        return (
            f"the reference was too low in {self.rounds} round{'s' if self.rounds > 1 else ''}, first in round "
            f"{self.first_round}, lowest slack {self.lowest_slack:.4g}"
            + (f"; raised in round {raised}" if raised else "")
        )
