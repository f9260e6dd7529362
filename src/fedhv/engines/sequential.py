"""One client after the other in this process: the simple engine that others are tested against."""

from __future__ import annotations

import torch

from fedhv.engines.autocast import Bfloat16
from fedhv.engines.base import Engine
from fedhv.problem.problem import Problem
from fedhv.protocol.exchange import Call, Collector, summed
from fedhv.protocol.request import Replies, Reply
from fedhv.protocol.sums import Partial


class Sequential(Engine):
    """Computes the clients of a cohort one after the other."""

    precisions = ("float32", "tf32", "bf16")

    def __init__(self, problem: Problem, device: torch.device | str = "cpu", precision: str = "float32") -> None:
        super().__init__(problem, device, precision)
        if precision == "bf16":
            self.client.network = Bfloat16(self.client.network, self.device)

    def ask(self, call: Call) -> Replies:
        """The replies of the cohort, one client after the other."""
        return Collector(call, self.layout, self.client.holding, self.summed(call)).replies()

    def summed(self, call: Call) -> Partial:
        """The sums over the cohort, or over a part of one."""
        answers = (self._answer(call, k) for k in call.cohort.clients)
        return summed(call, self.layout, answers, self.client.holding)

    def _answer(self, call: Call, k: int) -> Reply:
        with self.watching():
            return self.client.answer(call, k)
