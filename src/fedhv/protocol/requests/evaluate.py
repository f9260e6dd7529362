"""Evaluate: how good a model is on the examples that clients hold out. Down θ; up mean losses, mean scores, labels.

Where tasks have metrics, also each task's main metric and the number of labels behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedhv.problem.parameters import Layout
from fedhv.protocol.fields import tensor
from fedhv.protocol.request import Replies, Reply, Request
from fedhv.protocol.script import HeldOut, Judged, Member, Script


@dataclass(frozen=True)
class EvaluateReply(Reply):
    """For every task the mean loss and the mean score of the held-out examples with a label of it, and their number.

    Means, not sums: a node that clips and noises its reports can do the same to these. There is no such rule for
    metrics, so they are asked for only where reports are not protected.
    """

    losses: Tensor = tensor("m", label="held-out losses", small=True, combine="each", bound="report", corruptible=False)
    scores: Tensor = tensor("m", label="held-out scores", small=True, combine="each", bound="score", corruptible=False)
    labels: Tensor = tensor("m", label="held-out labels", small=True, combine="each", bound="count", corruptible=False)
    metrics: Tensor | None = tensor(
        "m", default=None, label="held-out metrics", small=True, combine="each", bound="metric", corruptible=False
    )
    measured: Tensor | None = tensor(
        "m", default=None, label="measured labels", small=True, combine="each", bound="count", corruptible=False
    )


@dataclass(frozen=True)
class EvaluateReplies(Replies):
    """What every client found, M × m each, in double precision.

    A metric counts only where its number of measured labels is not 0; both are 0 where no metric was asked for.
    """

    losses: Tensor
    scores: Tensor
    labels: Tensor
    metrics: Tensor
    measured: Tensor

    def overall(self) -> tuple[Tensor, Tensor]:
        """The mean loss and the mean score of every task over all held-out labels; NaN for a task without any."""
        count = self.labels.sum(dim=0)
        return (self.labels * self.losses).sum(dim=0) / count, (self.labels * self.scores).sum(dim=0) / count

    def overall_metrics(self) -> Tensor:
        """The mean over clients of every task's main metric, weighted by labels; NaN where no client has it."""
        return (self.measured * self.metrics).sum(dim=0) / self.measured.sum(dim=0)


@dataclass(frozen=True)
class Evaluate(Request):
    """Evaluates the model on the held-out examples of each client, without training.

    Attributes:
        model: θ.
        judged: Whether clients also compute the main metric of every task.
    """

    name: ClassVar[str] = "evaluate"
    reply: ClassVar[type[Reply]] = EvaluateReply
    evaluates: ClassVar[bool] = True

    model: Tensor = tensor("d")
    judged: bool = False

    def answer(self, me: Member) -> Script:
        """A client without held-out examples answers zeros, and zero labels."""
        losses, scores, labels = yield HeldOut(self.model)
        found = labels.clamp(min=1)
        reply = EvaluateReply((losses / found).float(), (scores / found).float(), labels.float())
        if not self.judged:
            return reply
        metrics, measured = yield Judged(self.model)
        return replace(reply, metrics=metrics.float().to(losses.device), measured=measured.float().to(losses.device))

    def asks_for(self, name: str, layout: Layout) -> bool:
        """Metrics only where they are wanted."""
        return self.judged or name not in ("metrics", "measured")

    def replies(self, answers: Replies) -> EvaluateReplies:
        """Losses, scores and labels, client by client."""
        empty = torch.zeros(0, answers.layout.tasks)
        names = ("losses", "scores", "labels", "metrics", "measured")
        stacks = {n: (empty if (s := answers.stacks[n]) is None else s).double() for n in names}
        if not len(stacks["metrics"]):
            stacks |= {n: torch.zeros_like(stacks["labels"]) for n in ("metrics", "measured")}
        return answers.named(EvaluateReplies, **stacks)
