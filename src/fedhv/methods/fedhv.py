"""FedHV: inverse-slack weights from the losses that clients report with their ordinary update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedhv.cohort import ReportBudget
from fedhv.errors import InputError, diverged
from fedhv.messages import Train
from fedhv.methods.base import Conversation, Method, State
from fedhv.weights import inverse_slack_weights, slacks


@dataclass(frozen=True, kw_only=True)
class FedHV(Method):
    """The paper's Algorithm 1: one downlink, one uplink, 2m extra scalars.

    The reports of round t set the weights of round t + 1; those of the first round are uniform.

    Attributes:
        reference: r, one loss per task, frozen before training; None until it is calibrated or given.
        report: B_rep, the minibatches that a report uses, or "all".
        floor: ρ_clip, the floor of the estimated slacks.
    """

    name: ClassVar[str] = "fedhv"

    reference: tuple[float, ...] | None = None
    report: ReportBudget = "all"
    floor: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        check_report_budget(self.report)
        if not 0 < self.floor < float("inf"):
            raise InputError(f"Method 'fedhv': `floor` should be positive. Found `floor = {self.floor}`.")
        if self.reference is not None:
            object.__setattr__(self, "reference", tuple(float(r) for r in self.reference))
            if not self.reference or not all(0 < r < float("inf") for r in self.reference):
                raise InputError(f"A reference should be positive and finite. Found {list(self.reference)}.")

    def round(self, state: State) -> Conversation:
        """One round of Algorithm 1."""
        replies = yield Train(state.model, state.weights, report=self.report)
        losses = replies.mean_report()
        if not bool(losses.isfinite().all()):
            raise diverged("The reported losses are")
        s = slacks(losses, self.reference)
        return State(
            model=state.model + self.server_lr * replies.mean_update,
            weights=inverse_slack_weights(losses, self.reference, self.floor).float(),
            record={"report": losses.tolist(), "slack": s.tolist(), "floored": int((s < self.floor).sum())},
        )


def check_report_budget(report: object) -> None:
    """B_rep is "all" or a whole number of minibatches."""
    whole = isinstance(report, int) and not isinstance(report, bool) and report >= 1
    if not whole and report != "all":
        raise InputError(f"`report` should be 'all' or a number of minibatches from 1. Found `report = {report!r}`.")
