"""From a client's reply to what the server takes: what a simulated fault makes of it, and whether it is accepted."""

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
    """The server's rules, simulated faults, which attempt at the round it is, and how clients count in means."""

    screening: Screening = field(default_factory=Screening)
    faults: Faults = NO_FAULTS
    attempt: int = 0
    average: Average = "clients"

    def fault(self, cohort: Cohort, client: int) -> Fault | None:
        """What goes wrong with a client in this round."""
        return self.faults.of(cohort.seed, cohort.round, client, self.attempt)

    def present(self, request: Request, cohort: Cohort) -> tuple[Cohort, list[Refusal]]:
        """The clients whose answers will arrive in time, and the others with the reason."""
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
        """A client's reply as it arrives, and why it is refused (None where it is taken)."""
        fault = self.fault(cohort, client)
        if fault is not None:
            reply = self.faults.corrupt(fault, reply)
        return reply, self.screening.objection(request, layout, reply)
