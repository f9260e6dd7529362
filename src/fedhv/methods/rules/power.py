"""Powers of the loss, the weights of q-fair federated learning."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedhv.methods.base import State
from fedhv.methods.rules.base import LossRule, RuleMemory, logarithms
from fedhv.support.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Power(LossRule):
    r"""Weights in proportion to a power of the loss: $w_i \propto p_i \hat F_i^q$.

    The gradient of $\sum_i \frac{p_i}{q+1} f_i^{q+1}$, the objective of T. Li, M. Sanjabi, A. Beirami and V. Smith,
    Fair Resource Allocation in Federated Learning, 2020 (q-FFL), with tasks in place of clients. The power 0
    gives the preferences, −1 the geometric mean, and ∞ min-max.

    Attributes:
        power: q, any finite number.
    """

    name: ClassVar[str] = "power"

    power: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isfinite(self.power):
            raise InputError(f"Method '{self.label}': `power` should be finite. Found {self.power}.")

    def weigh(self, losses: Tensor, state: State) -> tuple[Tensor, RuleMemory]:
        """w ∝ p F̂^q."""
        return self.simplex(self.power * logarithms(losses)), {}
