"""IMTL-L: loss balance with scales that the server learns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedhv.methods.base import State
from fedhv.methods.rules.base import LossRule, RuleMemory


@dataclass(frozen=True, kw_only=True)
class IMTLL(LossRule):
    r"""Each task has a scale $e^{s_i}$ that brings its loss to one; $w_i \propto p_i e^{s_i}$.

    L. Liu, Y. Li, Z. Kuang, J.-H. Xue, Y. Chen, W. Yang, Q. Liao and W. Zhang, Towards Impartial Multi-Task Learning,
    2021, its loss balance: $\sum_i e^{s_i} f_i - s_i$. The server takes one gradient step a round, from $s_i = 0$:

    $$ s_i \leftarrow s_i - \eta \big( e^{s_i} \hat F_i - 1 \big). $$

    Its fixed point is $e^{s_i} \hat F_i = 1$, the geometric mean. η → 0 gives the preferences. The losses should be of
    the order of one: with much larger ones a gradient step is too long.

    Attributes:
        rate: η, the step size of the scales.
    """

    name: ClassVar[str] = "imtl-l"
    positive: ClassVar[tuple[str, ...]] = ("rate",)

    rate: float = 0.1

    def weigh(self, losses: Tensor, state: State) -> tuple[Tensor, RuleMemory]:
        """w ∝ p e^{s}, and s."""
        s = state.memory.get("log_scale", torch.zeros_like(losses))
        s = s - self.rate * (s.exp() * losses - 1)
        return self.simplex(s), {"log_scale": s}
