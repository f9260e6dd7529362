"""Reported losses, for methods that read reports."""

from __future__ import annotations

from torch import Tensor

from fedhv.protocol.requests import TrainReplies
from fedhv.support.errors import diverged


def reported_losses(replies: TrainReplies) -> Tensor:
    """F̂ᵗ, the mean of the reports, in double precision. If it is not finite, the run has diverged."""
    losses = replies.mean_report()
    if not bool(losses.isfinite().all()):
        raise diverged("The reported losses are")
    return losses
