"""What methods ask of reports, and what they read of them."""

from __future__ import annotations

from torch import Tensor

from fedhv.protocol.requests import TrainReplies
from fedhv.support.errors import InputError, diverged


def check_report_budget(report: object) -> None:
    """B_rep is "all" or a whole number of minibatches."""
    whole = isinstance(report, int) and not isinstance(report, bool) and report >= 1
    if not whole and report != "all":
        raise InputError(f"`report` should be 'all' or a number of minibatches from 1. Found `report = {report!r}`.")


def reported_losses(replies: TrainReplies) -> Tensor:
    """F̂ᵗ, the mean of the reports, in double precision; a run whose reports are not finite has diverged."""
    losses = replies.mean_report()
    if not bool(losses.isfinite().all()):
        raise diverged("The reported losses are")
    return losses
