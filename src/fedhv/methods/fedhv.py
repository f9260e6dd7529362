"""FedHV: inverse-slack weights from the losses that clients report with their update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedhv.methods.base import Conversation, State
from fedhv.methods.referenced import ReferencedMethod
from fedhv.methods.reports import reported_losses
from fedhv.methods.weights import inverse_slack_weights, slacks
from fedhv.protocol.cohort import ReportBudget
from fedhv.protocol.requests import Train


@dataclass(frozen=True, kw_only=True)
class FedHV(ReferencedMethod):
    """The paper's Algorithm 1: one downlink, one uplink, 2m extra scalars.

    The reports of round t set the weights of round t + 1, Eq. (8); the first round has uniform weights. The inherited
    fields configure parts around the algorithm: robust reports, bounds on the weights and the reference watch. With
    preferences the weights are wᵢ ∝ pᵢ/(rᵢ − F̂ᵢ).

    Attributes:
        reference: r, one loss per task, frozen before training; None until it is calibrated or given.
        report: B_rep, the minibatches that a report uses, or "all".
        floor: ρ_clip, the floor of the estimated slacks.
    """

    name: ClassVar[str] = "fedhv"

    reference: tuple[float, ...] | None = None
    report: ReportBudget = "all"
    floor: float = 1e-6

    def round(self, state: State) -> Conversation:
        """One round of Algorithm 1."""
        replies = yield Train(state.model, state.weights, report=self.report)
        losses = reported_losses(replies)
        s = slacks(losses, self.reference)
        return State(
            model=state.model + self.server_lr * replies.mean_update,
            weights=inverse_slack_weights(losses, self.reference, self.floor, self.preferences),
            record={"report": losses.tolist(), "slack": s.tolist(), "floored": int((s < self.floor).sum())},
        )
