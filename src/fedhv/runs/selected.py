"""How a run's model was chosen: which round was kept and why the run ended, with its validation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedhv.protocol.evaluation import Evaluation, OverClients
from fedhv.simulation.record import Round
from fedhv.simulation.selection import Selection
from fedhv.support.jsonfile import Fields


@dataclass(frozen=True)
class Selected:
    """The model that a run kept.

    Attributes:
        keep: "last" or "best".
        round: The round whose model is kept.
        stopped: Why the run ended before its last round: "patience", "observer", or empty.
        score: What the rounds were compared by, on the examples that clients hold out; None where nothing was chosen.
        validation: The kept model on these examples, where there are some.
        over_clients: Its main scores over clients.
    """

    keep: str
    round: int
    stopped: str = ""
    score: float | None = None
    validation: Evaluation | None = None
    over_clients: tuple[OverClients, ...] = ()

    @classmethod
    def of(cls, keep: str, round: int, stopped: str, selection: Selection, at: Round | None) -> Selected:
        """From the rounds of a run; `at` is the one whose validation is the kept model's."""
        score = selection.score if keep == "best" and selection.round is not None else None
        if at is None:
            return cls(keep, round, stopped, score)
        over = Fields(dict(at.validation or {}))
        found = tuple(map(OverClients.read, over.objects("over_clients"))) if "over_clients" in over else ()
        return cls(keep, round, stopped, score, at.evaluation, found)

    @classmethod
    def read(cls, found: Fields) -> Selected:
        """From `selection` in a summary."""
        over = found.objects("over_clients") if "over_clients" in found else []
        return cls(
            keep=found.text("keep"),
            round=found.whole("round", least=1),
            stopped=found.text("stopped") if "stopped" in found else "",
            score=found.number("score") if "score" in found else None,
            validation=Evaluation.read(found.object("validation")) if "validation" in found else None,
            over_clients=tuple(map(OverClients.read, over)),
        )

    def as_dict(self) -> dict[str, Any]:
        """As `summary.json` has it."""
        made = {
            "keep": self.keep,
            "round": self.round,
            "stopped": self.stopped or None,
            "score": self.score,
            "validation": None if self.validation is None else self.validation.as_dict(),
            "over_clients": [each.as_dict() for each in self.over_clients] or None,
        }
        return {key: value for key, value in made.items() if value is not None}

    @property
    def text(self) -> str:
        """One line for tables; empty where the last of all rounds is kept."""
        kept = f"the model of round {self.round} is kept, the best on validation" if self.keep == "best" else ""
        why = {"patience": "no better one came within `evaluation.patience`", "observer": "stopped by the observer"}
        return ", ".join(filter(None, (kept, why.get(self.stopped, ""))))
