"""One client after the other in this process: the readable yardstick of every other engine."""

from __future__ import annotations

from fedhv.engines.base import Engine
from fedhv.protocol.exchange import Call, collect
from fedhv.protocol.request import Replies


class Sequential(Engine):
    """Loops over the cohort."""

    def ask(self, call: Call) -> Replies:
        """The cohort's answers, one client after the other."""
        answers = (self.client.answer(call, k) for k in call.cohort.clients)
        return collect(call, self.layout, answers, self.client.holding)
