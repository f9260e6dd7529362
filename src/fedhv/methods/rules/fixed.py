"""Fixed weights: linear scalarization with weights that the user chooses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedhv.methods.base import State
from fedhv.methods.rules.base import LossRule, RuleMemory


@dataclass(frozen=True, kw_only=True)
class Fixed(LossRule):
    r"""The weights are the preferences, in every round from the first: $\min_\theta \sum_i p_i f_i(\theta)$.

    D. Xin, B. Ghorbani, J. Gilmer, A. Garg and O. Firat, Do Current Multi-Task Optimization Methods in Deep Learning
    Even Help?, 2022, and V. Kurin, A. De Palma, I. Kostrikov, S. Whiteson and M. P. Kumar, In Defense of the Unitary
    Scalarization for Deep Multi-Task Learning, 2022, find that well-chosen fixed weights rival adaptive ones. Without
    preferences the weights are uniform.
    """

    name: ClassVar[str] = "fixed"

    def start(self, model: Tensor, tasks: int) -> State:
        """The first round has the fixed weights already."""
        return State(model, self.shares(tasks).float())

    def weigh(self, losses: Tensor, state: State) -> tuple[Tensor, RuleMemory]:
        """p, for any losses."""
        return self.shares(len(losses)), {}
