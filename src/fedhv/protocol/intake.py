"""The server's handling of a reply: simulated faults, then screening."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fedhv.problem.parameters import Layout
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.faults import NO_FAULTS, SILENT, Fault, Faults, silent
from fedhv.protocol.request import Refusal, Reply, Request
from fedhv.protocol.screening import Screening
from fedhv.protocol.shares import Average


@dataclass(frozen=True)
class Intake:
    """The server's rules for replies, the simulated faults, the number of the attempt, and the averaging of clients."""

    screening: Screening = field(default_factory=Screening)
    faults: Faults = NO_FAULTS
    attempt: int = 0
    average: Average = "clients"
    norms: bool = False
    """Whether the norm of every update is recorded."""

    def fault(self, cohort: Cohort, client: int) -> Fault | None:
        """The fault of a client in this round."""
        return self.faults.of(cohort.seed, cohort.round, client, self.attempt)

    def present(self, request: Request, cohort: Cohort) -> tuple[Cohort, list[Refusal]]:
        """The clients whose replies arrive in time, and the others with reasons."""
        if not self.faults.any:
            return cohort, []
        here: list[int] = []
        away: list[Refusal] = []
        for client in cohort.clients:
            fault = self.fault(cohort, client)
            if fault is not None and silent(fault, request):
                away.append(Refusal(client, SILENT[fault], sent=fault is Fault.LATE))
            else:
                here.append(client)
        return replace(cohort, clients=here), away

    def receive(
        self, request: Request, cohort: Cohort, layout: Layout, client: int, reply: Reply
    ) -> tuple[Reply, str | None]:
        """A client's reply as it arrives, and the reason for refusing it (None if it is accepted)."""
        fault = self.fault(cohort, client)
        if fault is not None:
            reply = self.faults.corrupt(fault, reply)
        return reply, self.screening.objection(request, layout, reply)
