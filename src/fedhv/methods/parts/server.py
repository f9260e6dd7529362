r"""Server optimisers: momentum, Adagrad, Adam or Yogi, applied to the step of any method.

The FedOpt family (Reddi et al., *Adaptive Federated Optimization*, 2021, Algorithm 2), with the method's step
$\Delta = \theta^{t+1} - \theta^t$ instead of the mean update.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from fedhv.support.errors import InputError, unknown
from fedhv.support.numbers import is_number

# A setting is read without PyTorch.
if TYPE_CHECKING:
    from torch import Tensor

    from fedhv.methods.base import State

KINDS = ("none", "momentum", "adagrad", "adam", "yogi")
PREFIX = "server."
"""The prefix of the optimiser's entries in the state's memory."""


@dataclass(frozen=True)
class ServerOptimiser:
    """The server's optimiser.

    Attributes:
        kind: "none" takes the step as it is; "momentum", "adagrad", "adam", "yogi".
        learning_rate: η of the server's optimiser. The method's server_lr scales the step as well.
        momentum: μ of "momentum" (FedAvgM).
        betas: β₁ and β₂ of the others; Adagrad uses only β₁.
        tau: τ, added to √v.
        correct_bias: Whether Adam's rate is multiplied by √(1 − β₂ᵗ⁺¹)/(1 − β₁ᵗ⁺¹) in round t = 1, 2, … (as in Flower);
            "both" divides m by 1 − β₁ᵗ and v by 1 − β₂ᵗ instead (as in torch.optim and pfl-research).
    """

    kind: Literal["none", "momentum", "adagrad", "adam", "yogi"] = "none"
    learning_rate: float = 1.0
    momentum: float = 0.9
    betas: tuple[float, ...] = (0.9, 0.99)
    tau: float = 1e-3
    correct_bias: bool | Literal["both"] = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("server optimiser", self.kind, KINDS)
        for name in ("learning_rate", "tau"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"`server.optimiser.{name}` should be positive. Found {getattr(self, name)}.")
        if not 0 <= self.momentum < 1:
            raise InputError(f"`server.optimiser.momentum` should be in [0, 1). Found {self.momentum}.")
        if len(self.betas) != 2 or not all(is_number(b) and 0 <= b < 1 for b in self.betas):
            raise InputError(f"`server.optimiser.betas` should be two numbers in [0, 1). Found {list(self.betas)}.")
        if self.correct_bias not in (True, False, "both"):
            raise InputError(
                f"`server.optimiser.correct_bias` should be true, false or 'both'. Found {self.correct_bias!r}."
            )

    def applied(self, before: State, after: State) -> State:
        """The state after a round, its model moved by this optimiser."""
        if self.kind == "none":
            return after
        delta = after.model - before.model
        old = {n.removeprefix(PREFIX): v for n, v in before.memory.items() if n.startswith(PREFIX)}
        direction, kept = self._direction(delta, old)
        memory = dict(after.memory) | {PREFIX + name: value for name, value in kept.items()}
        return replace(after, model=before.model + self.learning_rate * direction, memory=memory)

    def _direction(self, delta: Tensor, old: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        zero = delta.new_zeros(delta.shape)
        if self.kind == "momentum":
            v = self.momentum * old.get("m", zero) + delta
            return v, {"m": v}
        beta1, beta2 = self.betas
        m = beta1 * old.get("m", zero) + (1 - beta1) * delta
        v, square = old.get("v", zero), delta**2
        match self.kind:
            case "adagrad":
                v = v + square
            case "adam":
                v = beta2 * v + (1 - beta2) * square
            case "yogi":
                v = v - (1 - beta2) * square * (v - square).sign()
        t = old.get("t", delta.new_zeros(1)) + 1
        factor = 1.0
        if self.correct_bias == "both" and self.kind == "adam":
            power = float(t)
            return (m / (1 - beta1**power)) / ((v / (1 - beta2**power)).sqrt() + self.tau), {"m": m, "v": v, "t": t}
        if self.correct_bias and self.kind == "adam":
            power = float(t) + 1
            factor = math.sqrt(1 - beta2**power) / (1 - beta1**power)
        return factor * m / (v.sqrt() + self.tau), {"m": m, "v": v, "t": t}
