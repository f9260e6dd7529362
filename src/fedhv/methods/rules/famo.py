"""FAMO: all losses fall at the same relative rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedhv.methods.base import State
from fedhv.methods.rules.base import LossRule, RuleMemory, logarithms
from fedhv.support.errors import InputError


@dataclass(frozen=True, kw_only=True)
class FAMO(LossRule):
    r"""Logits ξ grow for tasks whose logarithmic loss falls slowly; $w_i \propto p_i z_i / \hat F_i$, $z$ = softmax(ξ).

    B. Liu, Y. Feng, P. Stone and Q. Liu, FAMO: Fast Adaptive Multitask Optimization, 2023, its update of the logits:

    $$ \xi^{t+1} = \xi^t - \beta(\delta^t + \gamma \xi^t), \qquad
       \delta^t = (\nabla_\xi z)^\top (\log \hat F^{t-1} - \log \hat F^t). $$

    The paper measures both losses on one minibatch; here they are the reports of two rounds. Its program steps with
    Adam; here the step is the algorithm's own. β = 0 gives the geometric mean.

    Attributes:
        rate: β, the step size of the logits.
        decay: γ, which pulls the logits to zero.
    """

    name: ClassVar[str] = "famo"
    positive: ClassVar[tuple[str, ...]] = ("rate",)

    rate: float = 0.025
    decay: float = 0.001

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.decay < float("inf"):
            raise InputError(f"Method '{self.label}': `decay` should not be negative. Found {self.decay}.")

    def weigh(self, losses: Tensor, state: State) -> tuple[Tensor, RuleMemory]:
        """w ∝ p z/F̂, and the logits."""
        xi = state.memory.get("logits", torch.zeros_like(losses))
        before = state.memory.get("before", losses)
        z = torch.softmax(xi, dim=0)
        fall = logarithms(before) - logarithms(losses)
        delta = z * (fall - (z * fall).sum())  # the softmax's Jacobian is diag(z) − zzᵀ
        xi = xi - self.rate * (delta + self.decay * xi)
        return self.simplex(torch.log_softmax(xi, dim=0) - logarithms(losses)), {"logits": xi, "before": losses}
