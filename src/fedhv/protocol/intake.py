"""The way of a reply from a client to the mean: what a fault makes of it, and whether the server takes it.

Engines hand every reply through here before they average, one at a time (`receive`) or a whole stack at once
(`receive_stack`), so that all of them leave out the same clients for the same reasons.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedhv.problem.parameters import Layout
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.faults import NO_FAULTS, SILENT, Fault, Faults, silent
from fedhv.protocol.messages import Refusal, Reply, Request, TaskUpdates, TaskUpdatesReply, TrainReply
from fedhv.protocol.screening import Screening


@dataclass(frozen=True)
class Intake:
    """The server's rules, the faults of this world, and which attempt at the round it is."""

    screening: Screening = field(default_factory=Screening)
    faults: Faults = NO_FAULTS
    attempt: int = 0

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

    def receive_stack(
        self, request: Request, cohort: Cohort, layout: Layout, results: Tensor, reports: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Cohort, tuple[Refusal, ...]]:
        """The same for all clients at once: one pass over the stack, and a closer look at what it finds.

        Args:
            request: `Train` or `TaskUpdates`.
            cohort: Whose results they are, in its order.
            layout: Of the model.
            results: M × d updates, or M × m × d.
            reports: M × m, on the CPU, where they were asked for.

        Returns:
            The results and reports that are taken, the clients they are of, and the others.
        """
        faulty = {
            j: fault for j, k in enumerate(cohort.clients) if (fault := self.fault(cohort, k)) is not None
        } if self.faults.any else {}  # fmt: skip
        doubtful = set(faulty) | self._doubtful(results, reports)
        if not doubtful:
            return results, reports, cohort, ()
        results, reports = results.clone(), None if reports is None else reports.clone()
        refused: list[Refusal] = []
        for j in sorted(doubtful):
            reply = self._row(request, results, reports, j)
            if j in faulty:
                reply = self.faults.corrupt(faulty[j], reply)
                self._put(reply, results, reports, j)
            objection = self.screening.objection(request, layout, reply)
            if objection is not None:
                refused.append(Refusal(cohort.clients[j], objection))
        if not refused:
            return results, reports, cohort, ()
        out = {each.client for each in refused}
        rows = [j for j, client in enumerate(cohort.clients) if client not in out]
        kept = replace(cohort, clients=[cohort.clients[j] for j in rows])
        return results[rows], None if reports is None else reports[rows], kept, tuple(refused)

    def _doubtful(self, results: Tensor, reports: Tensor | None) -> set[int]:
        """Rows that a cheap test cannot clear: the sum is not finite, or the norm is near its bound or above."""
        flags = ~torch.isfinite(results.flatten(1).sum(dim=1))
        if self.screening.max_update is not None:
            norms = torch.linalg.vector_norm(results, dim=-1).reshape(len(results), -1).amax(dim=1)
            flags |= ~(norms < 0.999 * self.screening.max_update)
        found = set(torch.nonzero(flags).flatten().tolist())
        if reports is not None:
            bound = self.screening.max_report
            bad = ~torch.isfinite(reports) | (reports < 0)
            if bound is not None:
                bad |= reports > bound
            found |= set(torch.nonzero(bad.any(dim=1)).flatten().tolist())
        return found

    def _row(self, request: Request, results: Tensor, reports: Tensor | None, j: int) -> Reply:
        if isinstance(request, TaskUpdates):
            return TaskUpdatesReply(results[j])
        return TrainReply(results[j], None if reports is None else reports[j])

    def _put(self, reply: Reply, results: Tensor, reports: Tensor | None, j: int) -> None:
        match reply:
            case TaskUpdatesReply(updates):
                results[j] = updates
            case TrainReply(update, report):
                results[j] = update
                if reports is not None and report is not None:
                    reports[j] = report
