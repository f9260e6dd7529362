"""FedHV with a moving reference that follows the losses: no calibration, and slacks that stay small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from fedhv.methods.base import State
from fedhv.methods.rules.base import SMALLEST, LossRule, RuleMemory
from fedhv.methods.weights import inverse_slack_weights
from fedhv.support.errors import InputError

Scope = Literal["common", "own"]


@dataclass(frozen=True, kw_only=True)
class MovingFedHV(LossRule):
    r"""FedHV's weights $w_i \propto p_i / (r_i^t - \hat F_i^t)$ with a reference computed from the reports.

    $$ P_i^t = \max\{\hat F_i^t, \gamma P_i^{t-1}\}, \qquad
       r_i^t = c \max_j P_j^t \;\text{ ("common")} \quad\text{or}\quad r_i^t = c\, P_i^t \;\text{ ("own")}. $$

    Late in training a frozen reference is far above the losses, and the weights become nearly uniform. This reference
    follows the losses. Slacks are positive, because c > 1. With a common reference and γ = 0 the factor interpolates
    between uniform weights (c → ∞) and min-max (c → 1). With one reference per task, losses are measured in units of
    their decayed maximum, which suits losses of different scales: $w_i \propto p_i / P_i$ for c → ∞.
    `fedhv.theory.moving` states which parts of the paper's theory hold.

    Attributes:
        factor: c, more than 1.
        decay: γ in [0, 1], the factor of the maximum per round; 0 uses the last report only, 1 uses all reports.
        scope: "common", one reference for all tasks, or "own", one per task; the latter needs a decay above 0.
    """

    name: ClassVar[str] = "fedhv-moving"

    factor: float = 1.5
    decay: float = 0.0
    scope: Scope = "common"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 < self.factor < float("inf"):
            raise InputError(f"Method '{self.label}': `factor` should be more than 1. Found {self.factor}.")
        if not 0 <= self.decay <= 1:
            raise InputError(f"Method '{self.label}': `decay` should be in [0, 1]. Found {self.decay}.")
        if self.scope not in get_args(Scope):
            raise InputError(f"Method '{self.label}': `scope` should be 'common' or 'own'. Found {self.scope!r}.")
        if self.scope == "own" and self.decay == 0:
            raise InputError(f"Method '{self.label}': `scope = 'own'` needs a `decay` above 0. Found {self.decay}.")

    def weigh(self, losses: Tensor, state: State) -> tuple[Tensor, RuleMemory]:
        """w ∝ p/(r − F̂), and the decayed maxima."""
        peaks = decayed_maximum(losses, state.memory.get("peaks"), self.decay)
        reference = moving_reference(peaks, self.factor, self.scope)
        return inverse_slack_weights(losses, reference, SMALLEST, self.preferences), {"peaks": peaks}


def decayed_maximum(losses: Tensor, before: Tensor | None, decay: float) -> Tensor:
    r"""$P^t = \max\{\hat F^t, \gamma P^{t-1}\}$, task by task."""
    return losses if before is None else torch.maximum(losses, decay * before)


def moving_reference(peaks: Tensor, factor: float, scope: Scope) -> Tensor:
    r"""$r^t$: c times the largest of the maxima, for all tasks, or c times each of them."""
    return factor * (peaks.max().expand_as(peaks) if scope == "common" else peaks)
