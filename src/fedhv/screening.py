"""Which replies a server takes. The same rules in the simulator and on Flower.

A reply is judged by itself, before it is averaged: it must be of the right kind, shape and count, finite, and its
losses not negative. What is refused is left out of the round and recorded; the rest of the round goes on with the
clients that are left, if they are at least `min_replies`; else the round is repeated, `attempts` times at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedhv.compression import Compressed, stack_shape
from fedhv.errors import FedHVError, InputError
from fedhv.messages import (
    GramTerms,
    GramTermsReply,
    Refusal,
    Reply,
    Request,
    TaskGradients,
    TaskGradientsReply,
    TaskUpdates,
    TaskUpdatesReply,
    Train,
    TrainReply,
)
from fedhv.parameters import Layout

__all__ = ["Refusal", "Screening", "TooFewReplies"]

NOT_FINITE = "with numbers that are not finite"


class TooFewReplies(FedHVError):
    """A round that has not enough replies; its state is kept and it may be repeated."""

    lost: bool = False
    """Whether replies arrived and every one of them was not finite: the mark of a divergence, not of faults."""


@dataclass(frozen=True)
class Screening:
    """What a server takes for an answer, and how many it needs.

    Attributes:
        min_replies: A round needs so many replies in every exchange.
        attempts: How often a round is tried before the run stops.
        max_update: The largest norm that an update may have; None takes any that is finite.
        max_report: The largest loss that a report may claim; None takes any that is finite.
    """

    min_replies: int = 1
    attempts: int = 3
    max_update: float | None = None
    max_report: float | None = None

    def __post_init__(self) -> None:
        for name in ("min_replies", "attempts"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"`{name}` should be a whole number from 1. Found `{name} = {value!r}`.")
        for name in ("max_update", "max_report"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise InputError(f"`{name}` should be positive. Found `{name} = {value}`.")

    def objection(self, request: Request, layout: Layout, reply: Reply) -> str | None:
        """Why a reply is refused, in a few words; None where it is taken."""
        match request, reply:
            case Train(report=None), TrainReply(update, report):
                if report is not None:
                    return "a report that was not asked for"
                return self._update(update, (layout.d,))
            case Train(), TrainReply(update, report):
                return self._update(update, (layout.d,)) or self._report(report, layout.tasks)
            case TaskUpdates(), TaskUpdatesReply(updates):
                return self._update(updates, (layout.tasks, layout.d))
            case TaskGradients(_, extra_upload), TaskGradientsReply(compressed, _):
                return _compressed(compressed, layout, extra_upload)
            case GramTerms(), GramTermsReply(known, residual):
                shape = (layout.tasks, layout.tasks)
                objection = _numbers(known, shape, "Gram terms") or _numbers(residual, shape, "Gram terms")
                if objection is None and bool((residual.diagonal() < 0).any()):
                    return "Gram terms with a negative squared norm"
                return objection
        return f"a {type(reply).__name__} in answer to {type(request).__name__}"

    def check_enough(self, taken: int, refused: Sequence[Refusal]) -> None:
        """Raise where too few replies are left."""
        if taken < self.min_replies:
            reasons = ", ".join(f"client {r.client}: {r.reason}" for r in refused[:5])
            more = f" and {len(refused) - 5} more" if len(refused) > 5 else ""
            few = TooFewReplies(
                f"A round needs {self.min_replies} {'reply' if self.min_replies == 1 else 'replies'} (`min_replies`). "
                f"Found {taken}; left out: {reasons}{more}."
            )
            arrived = [refusal for refusal in refused if NOT_FINITE in refusal.reason]
            few.lost = taken == 0 and bool(arrived) and len(arrived) == sum(refusal.sent for refusal in refused)
            raise few

    def _update(self, update: Tensor, shape: tuple[int, ...]) -> str | None:
        objection = _numbers(update, shape, "update")
        if objection is None and self.max_update is not None:
            norm = float(update.double().norm(dim=-1).max())
            if norm > self.max_update:
                return f"an update of norm {norm:.3g}"
        return objection

    def _report(self, report: Tensor | None, tasks: int) -> str | None:
        if report is None:
            return "no report"
        objection = _numbers(report, (tasks,), "report")
        if objection is None and bool((report < 0).any()):
            return "a negative loss in the report"
        if objection is None and self.max_report is not None and float(report.max()) > self.max_report:
            return f"a reported loss of {float(report.max()):.3g}"
        return objection


def _compressed(compressed: Compressed, layout: Layout, extra_upload: float) -> str | None:
    d, m = layout.d_shared, layout.tasks
    rows, columns, rank = stack_shape(d, m, extra_upload)
    if compressed.shape != (d, m):
        return f"compressed gradients of shape {tuple(compressed.shape)} instead of {(d, m)}"
    what = "compressed gradients"
    return _numbers(compressed.left, (rows, rank), what) or _numbers(compressed.right, (rank, columns), what)


def _numbers(value: Tensor, shape: tuple[int, ...], what: str) -> str | None:
    if tuple(value.shape) != shape:
        return f"{what} of shape {tuple(value.shape)} instead of {shape}"
    return None if _finite(value) else f"{what} {NOT_FINITE}"


def _finite(value: Tensor) -> bool:
    """Whether all numbers are finite. A finite sum says so at a quarter of the cost; one that is not may overflow."""
    return bool(torch.isfinite(value.sum())) or bool(torch.isfinite(value).all())
