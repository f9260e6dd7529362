"""FedProx in a user's module: your own request, run on every engine.

The client's objective has the additional term μ/2 ‖θ − θ₀‖², which keeps it near the received model.

    python examples/new_request.py
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

import fedhv
from fedhv.protocol.fields import tensor
from fedhv.protocol.local import Proximal
from fedhv.protocol.script import Descend


@dataclass(frozen=True)
class NearReply(fedhv.Reply):
    update: Tensor = tensor("d", bound="update")


@dataclass(frozen=True)
class TrainNear(fedhv.Request):
    reply = NearReply
    trains = True

    model: Tensor = tensor("d")
    weights: Tensor = tensor("m", small=True)
    mu: float = 0.1

    def answer(self, me):
        return NearReply((yield Descend(self.model, self.weights, terms=(Proximal(self.mu, self.model),))))


@dataclass(frozen=True, kw_only=True)
class Near(fedhv.Method):
    name = "near"

    def round(self, state):
        replies = yield TrainNear(state.model, state.weights)
        return fedhv.State(state.model + self.server_lr * replies.means["update"], state.weights)


if __name__ == "__main__":
    for engine in ("sequential", "parallel", "stacked"):
        print(engine, fedhv.run("digits", Near(local_lr=0.3), rounds=3, engine=engine).mean_accuracy)
