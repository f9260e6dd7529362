"""The health of a run from its history: floor hits, refused replies, repeated rounds, references that were too low."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fedhv.runs.summarise import reason_kind
from fedhv.simulation.record import Round
from fedhv.support.wording import counted


@dataclass(frozen=True)
class Incidents:
    """What happened in the rounds of a run beside training.

    Attributes:
        floored: How many slacks were below the floor.
        refused: How many replies were left out, by reason.
        refused_rounds: In how many rounds.
        repeated: How many rounds had to be tried again.
        breaches: In how many rounds a slack was too small.
        lowest: The lowest of these slacks.
        raised: How often the reference was raised.
        kept: In how many rounds a method kept its weights because the computed ones were invalid.
        not_finite: The first round with a loss or a score that is not finite.
    """

    floored: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    refused_rounds: int = 0
    repeated: int = 0
    breaches: int = 0
    lowest: float | None = None
    raised: int = 0
    kept: int = 0
    not_finite: int | None = None

    @classmethod
    def of(cls, rounds: Sequence[Round], not_finite: int | None = None) -> Incidents:
        """From the rounds of a history."""
        low = [breach.slack for each in rounds for breach in each.watch]
        return cls(
            floored=sum(each.floored or 0 for each in rounds),
            refused=Counter(reason_kind(refusal.reason) for each in rounds for refusal in each.refused),
            refused_rounds=sum(bool(each.refused) for each in rounds),
            repeated=sum(each.attempts > 1 for each in rounds),
            breaches=sum(bool(each.watch) for each in rounds),
            lowest=min(low) if low else None,
            raised=sum(each.raised is not None for each in rounds),
            kept=sum(each.weights_kept for each in rounds),
            not_finite=not_finite,
        )

    def lines(self) -> Iterator[tuple[str, bool]]:
        """Sentences, and whether each is a fault; none for a healthy run."""
        if self.not_finite is not None:
            yield f"diverged: losses are not finite from round {self.not_finite} on", True
        if self.breaches:
            raised = f"; the reference was raised {_times(self.raised)}" if self.raised else ""
            yield f"{counted(self.breaches, 'round')} with too little slack, lowest {self.lowest:.3g}{raised}", True
        if self.refused:
            reasons = ", ".join(f"{n} × {reason}" for reason, n in self.refused.most_common(3))
            replies = counted(self.refused.total(), "reply", "replies")
            yield f"{replies} refused in {counted(self.refused_rounds, 'round')}: {reasons}", True
        if self.repeated:
            yield f"{counted(self.repeated, 'round')} repeated", True
        if self.kept:
            yield f"weights kept in {counted(self.kept, 'round')}: the computed ones were invalid", True
        if self.floored:
            yield f"{counted(self.floored, 'slack')} below the floor", True


def _times(n: int) -> str:
    return "once" if n == 1 else f"{n} times"
