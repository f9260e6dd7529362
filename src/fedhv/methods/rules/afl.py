"""Min-max by multiplicative weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedhv.methods.base import State
from fedhv.methods.rules.base import LossRule, RuleMemory


@dataclass(frozen=True, kw_only=True)
class AFL(LossRule):
    r"""Descent in the model, ascent in the weights: $\min_\theta \max_{q \in \Delta} \sum_i q_i m p_i f_i(\theta)$.

    M. Mohri, G. Sivek and A. T. Suresh, Agnostic Federated Learning, 2019, its min-max problem over the
    mixtures of clients, with tasks in place of clients. The ascent is the exponentiated gradient
    $q_i^{t+1} \propto q_i^t \exp(\eta\, m p_i \hat F_i^t)$ of S. Sagawa, P. W. Koh, T. B. Hashimoto and P. Liang,
    Distributionally Robust Neural Networks for Group Shifts, 2020. The weights are
    $w_i \propto p_i q_i$. For equal preferences $m p_i = 1$. The rate 0 gives the preferences; a large one puts all
    weight on the largest sum of losses so far.

    Attributes:
        rate: η, the step size of the ascent.
    """

    name: ClassVar[str] = "afl"
    positive: ClassVar[tuple[str, ...]] = ("rate",)

    rate: float = 0.1

    def weigh(self, losses: Tensor, state: State) -> tuple[Tensor, RuleMemory]:
        """w ∝ p q, and log q, whose largest entry is zero."""
        log_q = state.memory.get("log_q", torch.zeros_like(losses))
        log_q = log_q + self.rate * len(losses) * self.shares(len(losses)) * losses
        log_q = log_q - log_q.max()
        return self.simplex(log_q), {"log_q": log_q}
