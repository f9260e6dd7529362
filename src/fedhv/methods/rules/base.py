"""A loss-only rule says how reported losses become weights; the round around it is FedHV's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedhv.methods.base import Conversation, State
from fedhv.methods.preferences import PreferenceMethod, shares
from fedhv.methods.reports import reported_losses
from fedhv.protocol.requests import Train
from fedhv.support.errors import InputError

SMALLEST = 1e-12
"""Losses count as at least this much where a rule divides by them or takes their logarithm."""

RuleMemory = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class LossRule(PreferenceMethod):
    """A rule that needs the reported losses alone: one downlink, one uplink, 2m extra scalars, as FedHV.

    A subclass defines `weigh`. The weights of every rule lie on the simplex: the scale that a paper's loss has besides
    belongs to the learning rates. The reports of round t set the weights of round t + 1, as in FedHV.
    """

    rates_of: ClassVar[str] = "fedhv"

    @abstractmethod
    def weigh(self, losses: Tensor, state: State) -> tuple[Tensor, RuleMemory]:
        """The next weights from the losses F̂ᵗ, and what to remember until the next round; all in double precision.

        `state.weights` are the weights that the round used, `state.memory` is what the round before remembered, on
        the CPU.
        """

    def round(self, state: State) -> Conversation:
        """One round: train with the weights, read the losses, weigh."""
        replies = yield Train(state.model, state.weights, report=self.report)
        losses = reported_losses(replies)
        known = {name: value.cpu() for name, value in state.memory.items()}
        weights, memory = self.weigh(losses.cpu(), replace(state, memory=known))
        return State(
            model=state.model + self.server_lr * replies.mean_update,
            weights=weights,
            memory={name: value.to(state.model.device) for name, value in memory.items()},
            record={"report": losses.tolist()},
        )

    def shares(self, tasks: int) -> Tensor:
        """The preferences on the simplex."""
        return shares(self.preferences, tasks)

    def simplex(self, scores: Tensor) -> Tensor:
        """Weights in proportion to pᵢ exp(scoreᵢ), on the simplex."""
        return torch.softmax(self.shares(len(scores)).log() + scores, dim=0)

    def positive(self, *names: str) -> None:
        """Refuse hyper-parameters that are not positive and finite."""
        for name in names:
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(f"Method '{self.label}': `{name}` should be positive. Found {getattr(self, name)}.")


def logarithms(losses: Tensor) -> Tensor:
    """log F̂, of losses of at least `SMALLEST`."""
    return losses.clamp(min=SMALLEST).log()
