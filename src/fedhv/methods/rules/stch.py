"""Smooth Tchebycheff scalarization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedhv.methods.base import State
from fedhv.methods.rules.base import LossRule, RuleMemory


@dataclass(frozen=True, kw_only=True)
class STCH(LossRule):
    r"""Weights of $\mu \log \sum_i \exp(\lambda_i f_i / \mu)$: $w_i \propto \lambda_i \exp(\lambda_i \hat F_i/\mu)$.

    X. Lin, X. Zhang, Z. Yang, F. Liu, Z. Wang and Q. Zhang, Smooth Tchebycheff Scalarization for Multi-Objective
    Optimization, 2024, its definition of STCH, with the ideal point $z^\star = 0$: losses are not negative. λ are the
    preferences on the simplex. μ → ∞ gives λ, μ → 0 the Tchebycheff scalarization $\max_i \lambda_i f_i$, which is
    min-max for equal preferences.

    Attributes:
        mu: μ, in the unit of the losses divided by m.
    """

    name: ClassVar[str] = "stch"
    positive: ClassVar[tuple[str, ...]] = ("mu",)

    mu: float = 0.1

    def weigh(self, losses: Tensor, state: State) -> tuple[Tensor, RuleMemory]:
        """w ∝ λ exp(λF̂/μ)."""
        return self.simplex(self.shares(len(losses)) * losses / self.mu), {}
