"""FedHV: inverse-slack weights from the losses that clients report with their ordinary update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedhv.methods.base import Conversation, Method, State
from fedhv.methods.watch import Policy, ReferenceBreached, breaches, check_watch, raised
from fedhv.methods.weights import capped_weights, inverse_slack_weights, slacks
from fedhv.protocol.aggregation import Aggregate, check_aggregate
from fedhv.protocol.cohort import ReportBudget
from fedhv.protocol.requests import Train
from fedhv.support.errors import InputError, diverged


@dataclass(frozen=True, kw_only=True)
class FedHV(Method):
    """The paper's Algorithm 1: one downlink, one uplink, 2m extra scalars.

    The reports of round t set the weights of round t + 1; those of the first round are uniform. All that comes after
    `floor` is off by default: it guards against false reports and against a reference that was calibrated too low.

    Attributes:
        reference: r, one loss per task, frozen before training; None until it is calibrated or given.
        report: B_rep, the minibatches that a report uses, or "all".
        floor: ρ_clip, the floor of the estimated slacks.
        aggregate: How reports become one: "mean" (the paper), "median" or "trimmed" (mean).
        trim: The share of reports that a trimmed mean cuts at either end.
        weight_cap: No weight is larger; from 1/m to 1.
        smoothing: β in [0, 1): the new weights are (1 − β) times those of the reports plus β times the old ones.
        watch: What to do when a slack is too small: "warn", "stop" or "recalibrate".
        watch_slack: A raw slack below this is too small, as is one below the floor.
        watch_margin: δ_r of a recalibration.
    """

    name: ClassVar[str] = "fedhv"

    reference: tuple[float, ...] | None = None
    report: ReportBudget = "all"
    floor: float = 1e-6
    aggregate: Aggregate = "mean"
    trim: float = 0.2
    weight_cap: float | None = None
    smoothing: float = 0.0
    watch: Policy = "warn"
    watch_slack: float = 0.0
    watch_margin: float = 0.15

    def __post_init__(self) -> None:
        super().__post_init__()
        check_report_budget(self.report)
        check_aggregate(self.aggregate, self.trim)
        check_watch(self.watch, self.watch_slack, self.watch_margin)
        if not 0 < self.floor < float("inf"):
            raise InputError(f"Method 'fedhv': `floor` should be positive. Found `floor = {self.floor}`.")
        if self.weight_cap is not None and not 0 < self.weight_cap <= 1:
            raise InputError(f"Method 'fedhv': `weight_cap` should be from 1/m to 1. Found {self.weight_cap}.")
        if not 0 <= self.smoothing < 1:
            raise InputError(f"Method 'fedhv': `smoothing` should be in [0, 1). Found {self.smoothing}.")
        if self.reference is not None:
            object.__setattr__(self, "reference", tuple(float(r) for r in self.reference))
            if not self.reference or not all(0 < r < float("inf") for r in self.reference):
                raise InputError(f"A reference should be positive and finite. Found {list(self.reference)}.")

    def check(self, tasks: int) -> None:
        """A cap below 1/m leaves no weights that sum to one."""
        if self.weight_cap is not None and self.weight_cap * tasks < 1 - 1e-12:
            raise InputError(
                f"Method 'fedhv': `weight_cap` should be at least 1/m = {1 / tasks:.4g}. Found {self.weight_cap}."
            )

    def round(self, state: State) -> Conversation:
        """One round of Algorithm 1."""
        replies = yield Train(state.model, state.weights, report=self.report)
        losses = replies.report(self.aggregate, self.trim)
        if not bool(losses.isfinite().all()):
            raise diverged("The reported losses are")
        reference, memory, seen = self._watched(losses, state)
        s = slacks(losses, reference)
        return State(
            model=state.model + self.server_lr * replies.mean_update,
            weights=self._guarded(inverse_slack_weights(losses, reference, self.floor), state.weights),
            memory=memory,
            record={"report": losses.tolist(), "slack": s.tolist(), "floored": int((s < self.floor).sum()), **seen},
        )

    def _guarded(self, weights: Tensor, before: Tensor) -> Tensor:
        """The weights, capped and smoothed where that is asked for; smoothing keeps them below the cap."""
        if self.weight_cap is not None:
            weights = capped_weights(weights, self.weight_cap)
        if self.smoothing:
            weights = (1 - self.smoothing) * weights + self.smoothing * before
        return weights.float()

    def _watched(self, losses: Tensor, state: State) -> tuple[Any, dict[str, Tensor], dict[str, Any]]:
        """The reference that this round uses, what to remember of it, and what the history should know."""
        memory = dict(state.memory)
        kept = memory.get("reference")
        if kept is not None and tuple(kept.shape) != tuple(losses.shape):
            raise InputError(f"The state's reference should have {len(losses)} values. Found {tuple(kept.shape)}.")
        reference = self.reference if kept is None else kept.cpu()
        found = breaches(slacks(losses, reference), self.floor, self.watch_slack)
        if not found:
            return reference, memory, {}
        seen: dict[str, Any] = {"watch": [each.as_dict() for each in found]}
        if self.watch == "stop":
            raise ReferenceBreached(
                'The reported losses come too close to their reference (`watch = "stop"`). Calibrate with a larger '
                'margin, or start a run with `watch = "recalibrate"`.',
                found,
            )
        if self.watch == "recalibrate":
            higher = raised(torch.as_tensor(reference, dtype=torch.float64), losses, self.watch_margin)
            return higher, {**memory, "reference": higher.to(state.model.device)}, {**seen, "raised": higher.tolist()}
        return reference, memory, seen


def check_report_budget(report: object) -> None:
    """B_rep is "all" or a whole number of minibatches."""
    whole = isinstance(report, int) and not isinstance(report, bool) and report >= 1
    if not whole and report != "all":
        raise InputError(f"`report` should be 'all' or a number of minibatches from 1. Found `report = {report!r}`.")
