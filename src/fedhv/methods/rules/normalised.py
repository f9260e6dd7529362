"""Normalised uniform weights: each loss in units of its first report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedhv.methods.base import State
from fedhv.methods.rules.base import LossRule, RuleMemory, logarithms


@dataclass(frozen=True, kw_only=True)
class Normalised(LossRule):
    r"""Uniform weights for losses in units of their first report: $w_i \propto p_i / \hat F_i^0$.

    The loss ratio $\tilde L_i(t) = L_i(t) / L_i(0)$ of Z. Chen, V. Badrinarayanan, C.-Y. Lee and A. Rabinovich,
    GradNorm: Gradient Normalization for Adaptive Loss Balancing in Deep Multitask Networks, 2018, with
    constant weights: $\min_\theta \sum_i p_i f_i(\theta) / \hat F_i^0$.
    """

    name: ClassVar[str] = "normalised"

    def weigh(self, losses: Tensor, state: State) -> tuple[Tensor, RuleMemory]:
        """w ∝ p/F̂⁰."""
        first = state.memory.get("first", losses)
        return self.simplex(-logarithms(first)), {"first": first}
