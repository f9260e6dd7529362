"""The geometric mean of the losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedhv.methods.base import State
from fedhv.methods.rules.base import LossRule, RuleMemory, logarithms


@dataclass(frozen=True, kw_only=True)
class Geometric(LossRule):
    r"""Weights in inverse proportion to the loss: $w_i \propto p_i / \hat F_i$.

    The gradient of the geometric loss $\prod_i f_i^{1/m}$ of S. Chennupati, G. Sistu, S. Yogamani and S. A. Rawashdeh,
    MultiNet++: Multi-Stream Feature Aggregation and Geometric Loss Strategy for Multi-Task Learning, 2019, up to
    its length; with preferences that of $\prod_i f_i^{p_i}$. The rule does not depend on the units of the losses: if a
    loss is multiplied by a constant, its weight is divided by it.
    """

    name: ClassVar[str] = "geometric"

    def weigh(self, losses: Tensor, state: State) -> tuple[Tensor, RuleMemory]:
        """w ∝ p/F̂."""
        return self.simplex(-logarithms(losses)), {}
