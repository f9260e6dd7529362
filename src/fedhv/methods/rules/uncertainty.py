"""Uncertainty weighting with log-variances that the server learns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedhv.methods.base import State
from fedhv.methods.rules.base import LossRule, RuleMemory


@dataclass(frozen=True, kw_only=True)
class Uncertainty(LossRule):
    r"""Each task has a variance $\sigma_i^2$; $w_i \propto p_i / \sigma_i^2$.

    A. Kendall, Y. Gal and R. Cipolla, Multi-Task Learning Using Uncertainty to Weigh Losses for Scene Geometry and
    Semantics, 2018, its objective for regression: $\sum_i \frac{1}{2\sigma_i^2} f_i + \log \sigma_i$. The server takes
    one gradient step a round in $s_i = \log \sigma_i^2$, from $s_i = 0$:

    $$ s_i \leftarrow s_i + \frac{\eta}{2} \big( \hat F_i e^{-s_i} - 1 \big). $$

    Its fixed point is $\sigma_i^2 = \hat F_i$, the geometric mean. η → 0 gives the preferences. As in the paper the
    losses should be of the order of one: with much larger ones a gradient step is too long.

    Attributes:
        rate: η, the step size of the log-variances.
    """

    name: ClassVar[str] = "uncertainty"
    positive: ClassVar[tuple[str, ...]] = ("rate",)

    rate: float = 0.1

    def weigh(self, losses: Tensor, state: State) -> tuple[Tensor, RuleMemory]:
        """w ∝ p e^{−s}, and s."""
        s = state.memory.get("log_variance", torch.zeros_like(losses))
        s = s + self.rate / 2 * (losses * (-s).exp() - 1)
        return self.simplex(-s), {"log_variance": s}
