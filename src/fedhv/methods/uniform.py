"""Uniform: the same single-trajectory training with wᵢ = 1/m. Calibration of FedHV's reference uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedhv.methods.base import Conversation, Method, State, checked_round
from fedhv.methods.parts.absent import remembered
from fedhv.methods.parts.robust import robust
from fedhv.protocol.aggregation import Aggregate, check_aggregate
from fedhv.protocol.cohort import ReportBudget, check_report_budget
from fedhv.protocol.requests import Train


@dataclass(frozen=True, kw_only=True)
class Uniform(Method):
    """Federated averaging of the mean task loss.

    Attributes:
        report: If set, clients report their losses with this budget; the method does not use them.
        aggregate: The aggregation of these reports, as for FedHV.
        trim: The fraction of reports that a trimmed mean cuts at each end.
    """

    name: ClassVar[str] = "uniform"

    report: ReportBudget | None = None
    aggregate: Aggregate = "mean"
    trim: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_aggregate(self.aggregate, self.trim)
        if self.report is not None:
            check_report_budget(self.report)

    def conversation(self, state: State) -> Conversation:
        """The round with robust reports; a task without labels in the cohort keeps its last report."""
        return robust(remembered(checked_round(self, state), state), self.aggregate, self.trim)

    def round(self, state: State) -> Conversation:
        """One round of federated averaging."""
        replies = yield Train(state.model, report=self.report)
        return State(
            model=state.model + self.server_lr * replies.mean_update,
            weights=state.weights,
            record={} if self.report is None else {"report": replies.mean_report().tolist()},
        )
