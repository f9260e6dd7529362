"""The interface of loss-only rules: a function from reported losses to weights, in FedHV's round."""

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
"""The lower bound of losses in divisions and logarithms."""

RuleMemory = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class LossRule(PreferenceMethod):
    """A rule that needs only the reported losses: one downlink, one uplink, 2m extra scalars, as FedHV.

    A subclass defines `weigh`. The weights of every rule are on the simplex; the scale of a rule's original loss
    belongs to the learning rates. The reports of round t set the weights of round t + 1, as in FedHV.
    """

    positive: ClassVar[tuple[str, ...]] = ()
    """The names of the hyper-parameters that have to be positive and finite."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.positive:
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(f"Method '{self.label}': `{name}` should be positive. Found {getattr(self, name)}.")

    @abstractmethod
    def weigh(self, losses: Tensor, state: State) -> tuple[Tensor, RuleMemory]:
        """The next weights from the losses F̂ᵗ, and the memory for the next round, in double precision.

        `state.weights` are the weights of this round, and `state.memory` is the memory of the round before, on the CPU.
        """

    def round(self, state: State) -> Conversation:
        """One round: train with the weights, read the reported losses, compute the next weights."""
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


def logarithms(losses: Tensor) -> Tensor:
    """log F̂, with losses bounded below by `SMALLEST`."""
    return losses.clamp(min=SMALLEST).log()
