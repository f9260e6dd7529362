"""ContinueTraining: local training whose first gradient is known. Down w; up Δθ_k. FedCMOO's last exchange."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedhv.problem.parameters import Layout
from fedhv.protocol.fields import tensor
from fedhv.protocol.request import Reply
from fedhv.protocol.requests.train import Train, TrainReply, task_weights
from fedhv.protocol.script import Descend, Member, Script


@dataclass(frozen=True)
class ContinueTraining(Train):
    """Local training after `TaskGradients` of the same round, with the weights that the server has computed.

    The clients have θᵗ and their task gradients. The first step applies Σ wᵢ∇ℓᵢ; K − 1 steps follow.
    """

    name: ClassVar[str] = "continue_training"
    reply: ClassVar[type[Reply]] = TrainReply

    model: Tensor = tensor("d", known=True)

    def answer(self, me: Member) -> Script:
        """From the model and the gradients that the client keeps."""
        w = task_weights(self.weights, me.layout)
        first = w.to(self.model) @ me.recall("gradients", "task gradients")
        return TrainReply((yield Descend(self.model, w, first=first, terms=self.terms(me))))

    def gradients(self, layout: Layout, steps: int) -> int:
        """The first of the K steps needs none."""
        return steps - 1
