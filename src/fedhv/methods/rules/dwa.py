"""Dynamic weight average."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedhv.methods.base import State
from fedhv.methods.rules.base import LossRule, RuleMemory, logarithms


@dataclass(frozen=True, kw_only=True)
class DWA(LossRule):
    r"""Tasks whose loss falls slowly weigh more: $w_i \propto p_i \exp(\hat F_i^t / (\hat F_i^{t-1} T))$.

    S. Liu, E. Johns and A. J. Davison, End-to-End Multi-Task Learning with Attention, 2019, its dynamic weight
    average, with rounds in place of epochs. The first report alone gives the preferences. T → ∞ gives
    the preferences. T → 0 gives all weight to the task whose loss decreased by the smallest factor.

    Attributes:
        temperature: T.
    """

    name: ClassVar[str] = "dwa"
    positive: ClassVar[tuple[str, ...]] = ("temperature",)

    temperature: float = 2.0

    def weigh(self, losses: Tensor, state: State) -> tuple[Tensor, RuleMemory]:
        """w ∝ p exp(rate/T), with the rate of descent F̂ᵗ/F̂ᵗ⁻¹."""
        before = state.memory.get("before")
        ratio = torch.ones_like(losses) if before is None else (logarithms(losses) - logarithms(before)).exp()
        return self.simplex(ratio / self.temperature), {"before": losses}
