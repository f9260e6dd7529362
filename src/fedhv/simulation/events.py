"""What a run yields to whoever drives it: requests, evaluations to compute, finished rounds, errors."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from torch import Tensor

from fedhv.methods.base import State
from fedhv.protocol.exchange import Call
from fedhv.protocol.memories import Kept
from fedhv.simulation.record import Round
from fedhv.support.errors import FedHVError


@dataclass(frozen=True, kw_only=True)
class FinishedRound(Round):
    """A round that has just ended: its record for the history, and the state after it."""

    state: State
    kept: Kept = field(default_factory=dict)
    """The tensors that the round's clients keep until the run ends."""

    @property
    def record(self) -> Round:
        """The record without the state, which would need too much memory for every round."""
        return Round(**{each.name: getattr(self, each.name) for each in fields(Round)})


@dataclass(frozen=True)
class Assess:
    """A run's request for the evaluation of a model; `later` asks for a function that returns it."""

    model: Tensor
    reference: float
    later: bool = False


Event = Call | Assess | FinishedRound | FedHVError
"""What a run yields: a request, an evaluation to compute, a finished round, or the error that ended it."""
