"""Evaluate: how good a model is on the examples that clients hold out. Down θ; up mean losses, mean scores, labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedhv.protocol.fields import tensor
from fedhv.protocol.request import Replies, Reply, Request
from fedhv.protocol.script import HeldOut, Member, Script


@dataclass(frozen=True)
class EvaluateReply(Reply):
    """For every task the mean loss and the mean score of the held-out examples with a label of it, and their number.

    Means, not sums: a node that clips and noises its reports can do the same to these.
    """

    losses: Tensor = tensor("m", label="held-out losses", small=True, combine="each", bound="report", corruptible=False)
    scores: Tensor = tensor("m", label="held-out scores", small=True, combine="each", bound="score", corruptible=False)
    labels: Tensor = tensor("m", label="held-out labels", small=True, combine="each", bound="count", corruptible=False)


@dataclass(frozen=True)
class EvaluateReplies(Replies):
    """What every client found, M × m each, in double precision."""

    losses: Tensor
    scores: Tensor
    labels: Tensor

    def overall(self) -> tuple[Tensor, Tensor]:
        """The mean loss and the mean score of every task over all held-out labels; NaN for a task without any."""
        count = self.labels.sum(dim=0)
        return (self.labels * self.losses).sum(dim=0) / count, (self.labels * self.scores).sum(dim=0) / count


@dataclass(frozen=True)
class Evaluate(Request):
    """The model on the examples that each client holds out; nobody trains."""

    name: ClassVar[str] = "evaluate"
    reply: ClassVar[type[Reply]] = EvaluateReply
    evaluates: ClassVar[bool] = True

    model: Tensor = tensor("d")

    def answer(self, me: Member) -> Script:
        """A client without held-out examples answers zeros, and zero labels."""
        losses, scores, labels = yield HeldOut(self.model)
        found = labels.clamp(min=1)
        return EvaluateReply((losses / found).float(), (scores / found).float(), labels.float())

    def replies(self, answers: Replies) -> EvaluateReplies:
        """Losses, scores and labels, client by client."""
        empty = torch.zeros(0, answers.layout.tasks)
        stacks = {
            n: (empty if (s := answers.stacks[n]) is None else s).double() for n in ("losses", "scores", "labels")
        }
        return answers.named(EvaluateReplies, **stacks)
