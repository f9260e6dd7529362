r"""SCAFFOLD: control variates correct the drift of local training (Karimireddy et al. 2020, option II).

A client trains with the gradients $g(\theta) - c_k + c$. After K steps from $\theta^t$ to $\theta_k$, its control
variate becomes $c_k^+ = c_k - c + (\theta^t - \theta_k) / (K \eta_\ell)$. The server takes the mean of the updates,
and $c \leftarrow c + \frac{|S|}{N}$ times the mean of $c_k^+ - c_k$.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedhv.methods.base import Conversation, Method, State
from fedhv.protocol.fields import tensor
from fedhv.protocol.local import SGD, Linear
from fedhv.protocol.request import Reply, Request
from fedhv.protocol.requests.train import task_weights
from fedhv.protocol.script import Descend, Member, Script
from fedhv.support.errors import InputError


@dataclass(frozen=True)
class ScaffoldReply(Reply):
    """Δθ_k and the change of c_k."""

    update: Tensor = tensor("d", bound="update")
    control: Tensor = tensor("d", label="control variate")


@dataclass(frozen=True)
class ScaffoldTrain(Request):
    """Local training on the mean task loss, corrected by control variates. Down θ, c; up Δθ_k, c_k⁺ − c_k.

    The client keeps c_k until the run ends.
    """

    name: ClassVar[str] = "scaffold"
    reply: ClassVar[type[Reply]] = ScaffoldReply
    trains: ClassVar[bool] = True
    keeps: ClassVar[bool] = True

    model: Tensor = tensor("d")
    control: Tensor = tensor("d", label="control variate")

    def answer(self, me: Member) -> Script:
        """Option II: the new control variate is the mean of the gradients that the client used."""
        if me.local.rule != SGD():
            raise InputError(
                "SCAFFOLD's control variates need plain SGD on the clients (`training.momentum = 0`). "
                f"Found {me.local.rule}."
            )
        c, kept = self.control, me.memory.run
        own = kept.get("control", torch.zeros_like(c))
        w = task_weights(None, me.layout)
        update = yield Descend(self.model, w, terms=(Linear(c - own),))
        change = -c - update / (me.local.steps_of(me.examples) * me.local.learning_rate)
        kept["control"] = own + change
        return ScaffoldReply(update, change)


@dataclass(frozen=True, kw_only=True)
class SCAFFOLD(Method):
    """Federated averaging of the mean task loss with control variates on the server and the clients."""

    name: ClassVar[str] = "scaffold"

    def start(self, model: Tensor, tasks: int) -> State:
        """All control variates start at zero."""
        return replace(super().start(model, tasks), memory={"control": torch.zeros_like(model)})

    def round(self, state: State) -> Conversation:
        """One round."""
        c = state.memory["control"]
        replies = yield ScaffoldTrain(state.model, c)
        share = len(replies.cohort) / replies.cohort.population
        return State(
            model=state.model + self.server_lr * replies.means["update"],
            weights=state.weights,
            memory={"control": c + share * replies.means["control"]},
        )
