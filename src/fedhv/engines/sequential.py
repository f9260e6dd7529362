"""One client after the other in this process: the readable yardstick of every other engine."""

from __future__ import annotations

from fedhv.engines.base import Engine
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.messages import Replies, Request, collect


class Sequential(Engine):
    """Loops over the cohort."""

    def ask(self, request: Request, cohort: Cohort) -> Replies:
        """The cohort's answers, one client after the other."""
        answers = (self.client.answer(request, cohort, k) for k in cohort.clients)
        return collect(request, cohort, self.layout, answers)
