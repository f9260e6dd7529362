"""Methods that compute task weights from reported losses, and the parts that wrap them."""

from __future__ import annotations

from dataclasses import dataclass

from fedhv.methods.base import Conversation, Method, State, checked_round
from fedhv.methods.parts.absent import remembered
from fedhv.methods.parts.bounds import bounded
from fedhv.methods.parts.robust import robust
from fedhv.protocol.aggregation import Aggregate, check_aggregate
from fedhv.protocol.cohort import ReportBudget, check_report_budget
from fedhv.support.errors import InputError


@dataclass(frozen=True, kw_only=True)
class ReportingMethod(Method):
    """A method that reads reports. A subclass defines `round`; the parts are off by default.

    The server runs `conversation`: the subclass's round with robust reports and bounded weights.

    Attributes:
        report: B_rep, the minibatches that a report uses, or "all".
        aggregate: The aggregation of reports: "mean" (the paper), "median" or "trimmed" (mean).
        trim: The fraction of reports that a trimmed mean cuts at each end.
        weight_cap: The largest weight, from 1/m to 1. The weight of a single task is 1 whatever the cap.
        smoothing: β in [0, 1): the new weights are (1 − β) times those from the reports plus β times the old ones.
    """

    report: ReportBudget = "all"
    aggregate: Aggregate = "mean"
    trim: float = 0.2
    weight_cap: float | None = None
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_report_budget(self.report)
        check_aggregate(self.aggregate, self.trim)
        if self.weight_cap is not None and not 0 < self.weight_cap <= 1:
            raise InputError(f"Method '{self.label}': `weight_cap` should be from 1/m to 1. Found {self.weight_cap}.")
        if not 0 <= self.smoothing < 1:
            raise InputError(f"Method '{self.label}': `smoothing` should be in [0, 1). Found {self.smoothing}.")

    def check(self, tasks: int) -> None:
        """Reject a cap below 1/m: capped weights could not sum to one."""
        if self.weight_cap is not None and tasks > 1 and self.weight_cap * tasks < 1 - 1e-12:
            raise InputError(
                f"Method '{self.label}': `weight_cap` should be at least 1/m = {1 / tasks:.4g}. "
                f"Found {self.weight_cap}."
            )

    def conversation(self, state: State) -> Conversation:
        """The round, wrapped in its parts."""
        conversation = robust(remembered(self.guarded_round(state), state), self.aggregate, self.trim)
        cap = self.weight_cap if len(state.weights) > 1 else None  # the profile "hardened" has one for any problem
        return bounded(conversation, state.weights, cap, self.smoothing)

    def guarded_round(self, state: State) -> Conversation:
        """The round, wrapped in the parts that need its replies and may restart it."""
        return checked_round(self, state)
