"""Schedules: how the local learning rate changes over the rounds of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fedhv.support.errors import InputError


@dataclass(frozen=True)
class Schedule:
    """The factor of the learning rate in every round.

    Attributes:
        kind: "constant"; "step": times `factor` after every `every` rounds; "cosine": from 1 down to `factor`.
        warm_up: The first rounds, over which the rate grows linearly to its full size.
        every: Rounds between two steps.
        factor: The factor of a step, or the factor at the end of a cosine.
    """

    kind: Literal["constant", "step", "cosine"] = "constant"
    warm_up: int = 0
    every: int = 100
    factor: float = 0.1

    def __post_init__(self) -> None:
        if self.kind not in ("constant", "step", "cosine"):
            raise InputError(f"`schedule.kind` should be 'constant', 'step' or 'cosine'. Found '{self.kind}'.")
        if self.warm_up < 0 or self.every < 1:
            raise InputError(
                f"`schedule.warm_up` should be 0 or more, `every` at least 1. Found {self.warm_up}, {self.every}."
            )
        if not 0 <= self.factor <= 1:
            raise InputError(f"`schedule.factor` should be from 0 to 1. Found {self.factor}.")

    def at(self, t: int, rounds: int) -> float:
        """The factor in round t of 0 … rounds − 1; at least 1e-6, because a rate must be positive."""
        if t < self.warm_up:
            return (t + 1) / (self.warm_up + 1)
        match self.kind:
            case "step":
                found = self.factor ** ((t - self.warm_up) // self.every)
            case "cosine":
                share = (t - self.warm_up) / max(1, rounds - self.warm_up)
                found = self.factor + (1 - self.factor) * (1 + math.cos(math.pi * share)) / 2
            case _:
                return 1.0
        return max(found, 1e-6)
