"""Update rules: one local step, as a pure function of θ, the gradient and the rule's state.

They work for one parameter vector and for a stack with one row per client. They match the optimisers of torch.optim.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

RuleState = tuple[Tensor, ...]
"""The state of an update rule between steps; empty before the first step."""

Rate = float | Tensor
"""η_ℓ: a number, or for a stack a column with one number per client."""


class UpdateRule(ABC):
    """θ ← θ − η_ℓ(…): one local step. Subclasses are frozen dataclasses; their fields are hyper-parameters."""

    @abstractmethod
    def step(self, theta: Tensor, gradient: Tensor, state: RuleState, rate: Rate) -> tuple[Tensor, RuleState]:
        """θ and the state after a step."""

    @abstractmethod
    def widths(self, d: int) -> tuple[int, ...]:
        """How many numbers each tensor of the state has for a model of d parameters."""


@dataclass(frozen=True)
class SGD(UpdateRule):
    r"""$v \leftarrow \mu v + g$, $\theta \leftarrow \theta - \eta_\ell v$ (Nesterov: $g + \mu v$ in place of $v$).

    Weight decay λ adds λθ to the gradient.
    """

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def step(self, theta: Tensor, gradient: Tensor, state: RuleState, rate: Rate) -> tuple[Tensor, RuleState]:
        """One step of SGD."""
        if self.weight_decay:
            gradient = torch.add(gradient, theta, alpha=self.weight_decay)
        velocity = gradient
        if state and self.momentum != 0:
            (before,) = state
            # A stack is large: use as few passes over it as possible.
            one_pass = isinstance(rate, Tensor)
            velocity = (
                torch.add(gradient, before, alpha=self.momentum) if one_pass else self.momentum * before + gradient
            )
        direction = torch.add(gradient, velocity, alpha=self.momentum) if self.nesterov else velocity
        return moved(theta, direction, rate), (velocity,) if self.momentum != 0 else ()

    def widths(self, d: int) -> tuple[int, ...]:
        """The velocity."""
        return (d,) if self.momentum != 0 else ()


@dataclass(frozen=True)
class Adam(UpdateRule):
    """Adam (Kingma and Ba, 2015); `decoupled` weight decay is AdamW (Loshchilov and Hutter, 2019)."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False

    def step(self, theta: Tensor, gradient: Tensor, state: RuleState, rate: Rate) -> tuple[Tensor, RuleState]:
        """One step of Adam, with both biases corrected."""
        if self.weight_decay:
            if self.decoupled:
                theta = theta * (1 - rate * self.weight_decay)
            else:
                gradient = torch.add(gradient, theta, alpha=self.weight_decay)
        m, v, t = state or (torch.zeros_like(theta), torch.zeros_like(theta), theta.new_zeros(*theta.shape[:-1], 1))
        t = t + 1
        m = torch.lerp(m, gradient, 1 - self.beta1)
        v = torch.addcmul(self.beta2 * v, gradient, gradient, value=1 - self.beta2)
        # Powers in double precision: 1 − β₂ᵗ of the first steps has few digits left in single precision.
        bias1, bias2 = ((1 - beta ** t.double()).to(theta.dtype) for beta in (self.beta1, self.beta2))
        direction = (m / bias1) / (v.sqrt() / bias2.sqrt() + self.epsilon)
        return moved(theta, direction, rate), (m, v, t)

    def widths(self, d: int) -> tuple[int, ...]:
        """Both moments and the number of steps."""
        return (d, d, 1)


def moved(theta: Tensor, direction: Tensor, rate: Rate) -> Tensor:
    """θ − η_ℓ times a direction."""
    if isinstance(rate, Tensor):
        return torch.addcmul(theta, rate, direction, value=-1)
    return torch.sub(theta, direction, alpha=rate)


def clipped(gradient: Tensor, largest: float) -> Tensor:
    """The gradient scaled down to a norm of `largest`, client by client in a stack."""
    norm: Tensor = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
    return gradient * (largest / (norm + 1e-6)).clamp(max=1.0)
