"""Train: K local steps on the weighted loss, and a report of the m losses before them. Down θ, w; up Δθ_k, F̂_k."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedhv.problem.parameters import Layout
from fedhv.protocol.aggregation import Aggregate, aggregate_reports
from fedhv.protocol.cohort import ReportBudget, check_report_budget
from fedhv.protocol.fields import Shape, server_side, tensor, tensors_of
from fedhv.protocol.local import Term
from fedhv.protocol.request import Replies, Reply, Request
from fedhv.protocol.script import Descend, Losses, Member, Script
from fedhv.support.errors import InputError


@dataclass(frozen=True)
class TrainReply(Reply):
    """Δθ_k and F̂_k; if labels may be missing, also the number of labels in the report."""

    update: Tensor = tensor("d", bound="update")
    report: Tensor | None = tensor("m", default=None, small=True, combine="each", bound="report", corruptible=False)
    labels: Tensor | None = tensor("m", default=None, small=True, combine="each", bound="count", corruptible=False)


@dataclass(frozen=True)
class TrainReplies(Replies):
    """The mean update, and every client's report (M × m)."""

    mean_update: Tensor
    reports: Tensor | None

    def mean_report(self) -> Tensor:
        """F̂ᵗ, the mean of the clients' reports, in double precision."""
        return self.report("mean")

    def report(self, aggregate: Aggregate, trim: float = 0.0) -> Tensor:
        """F̂ᵗ as the mean, the median or the trimmed mean of the clients' reports, in double precision.

        A task that no client of the cohort has is NaN.
        """
        if self.reports is None:
            raise InputError('The replies have no reports. Request them with Train(…, report="all").')
        return aggregate_reports(self.reports.double(), aggregate, trim, self.shares)


@dataclass(frozen=True)
class Train(Request):
    """K local steps on Σ wᵢℓᵢ, and before them, at the received model, a report of the m losses.

    Attributes:
        model: θᵗ.
        weights: wᵗ, fixed for all K steps; None means 1/m each and is not sent.
        report: The budget B_rep of the report; None for no report.
        each: Whether `replies.each` has every client's reply; the server then holds M updates.
    """

    name: ClassVar[str] = "train"
    reply: ClassVar[type[Reply]] = TrainReply
    trains: ClassVar[bool] = True

    model: Tensor = tensor("d")
    weights: Tensor | None = tensor("m", default=None, small=True)
    report: ReportBudget | None = None
    each: bool = server_side(False)

    def __post_init__(self) -> None:
        if self.report is not None:  # a node does not trust the server
            check_report_budget(self.report)

    def answer(self, me: Member) -> Script:
        """The report is taken at the received model, before local training."""
        losses = labels = None
        if self.report is not None:
            chosen = me.report_examples(self.report)
            losses, labels = me.report((yield Losses(self.model, chosen)), chosen)
        update = yield Descend(self.model, task_weights(self.weights, me.layout), terms=self.terms(me))
        return TrainReply(update, losses, labels)

    def terms(self, me: Member) -> tuple[Term, ...]:
        """Additional terms of the local objective; subclasses may override this."""
        return ()

    def asks_for(self, name: str, layout: Layout) -> bool:
        """A report only if there is a budget, and its labels only if some may be missing."""
        if name == "labels" and not layout.partial:
            return False
        return name == "update" or self.report is not None

    def replies(self, answers: Replies) -> TrainReplies:
        """The mean update and the reports."""
        reports, labels = answers.stacks["report"], answers.stacks["labels"]
        if labels is not None and answers.shares is not None:
            # A report with a budget may contain no label of a task that the client has.
            answers = replace(answers, shares=answers.shares * (labels > 0))
        return answers.named(TrainReplies, mean_update=answers.means["update"], reports=reports)

    # On the wire, clients return parameters and not differences: Flower's clipping and noise modules expect this.

    def to_wire(self, reply: Any, layout: Layout) -> dict[str, Tensor]:
        """θ_k after local training, and the report."""
        sent = tensors_of(reply)
        return {"model": self.model + sent.pop("update"), **sent}

    def from_wire(self, found: Mapping[str, Tensor], layout: Layout) -> Reply:
        """The update: the server subtracts θᵗ."""
        update = found["model"].to(self.model) - self.model
        return super().from_wire({**found, "update": update}, layout)

    def wire_shapes(self, layout: Layout) -> dict[str, Shape]:
        """The parameters replace the update."""
        shapes = super().wire_shapes(layout)
        return {"model": shapes.pop("update")} | shapes


def task_weights(weights: Tensor | None, layout: Layout) -> Tensor:
    """The weights of a request, or 1/m each if it has none."""
    return torch.full((layout.tasks,), 1 / layout.tasks) if weights is None else weights
