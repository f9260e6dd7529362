"""Which replies a server takes. The same rules in the simulator and on Flower.

A reply is judged by itself, before it is averaged: it must be of the right kind, shape and count, finite, and its
losses not negative. What is refused is left out of the round and recorded; the rest of the round goes on with the
clients that are left, if they are at least `min_replies`; else the round is repeated, `attempts` times at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedhv.problem.parameters import Layout
from fedhv.protocol.compression import Compressed, stack_shape
from fedhv.protocol.messages import (
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
from fedhv.support.errors import FedHVError, InputError

__all__ = ["Refusal", "Screening", "TooFewReplies"]

NOT_FINITE = "with numbers that are not finite"

LARGEST = torch.finfo(torch.float32).max

ROUNDING = 1e-2
"""How far inner products may be from what they should be, relative to the norms: those of tensor cores pass."""
NOTHING = 1e-30
"""A squared norm below which inner products in single precision have lost what they should be."""


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
                shape, known, residual = (layout.tasks, layout.tasks), known.cpu(), residual.cpu()
                objection = _numbers(known, shape, "Gram terms") or _numbers(residual, shape, "Gram terms")
                return objection or _inner_products(residual)
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
    factors = ((compressed.left, (rows, rank)), (compressed.right, (rank, columns)))
    objection = next((found for factor, shape in factors if (found := _shaped(factor, shape, what))), None)
    if objection is not None:
        return objection
    norms = [_norm(factor) for factor, _ in factors]  # in double precision: finite where all numbers are
    if not all(map(math.isfinite, norms)):
        return f"{what} {NOT_FINITE}"
    # Factors may be finite and their product C infinite, or so large that everybody's inner products with the sum of
    # all are. An honest client's ‖C‖² ≤ ‖A‖² is the sum of m squared norms, which it could not send if they were not
    # finite. The product of the factors' norms is at least ‖C‖, and little more where one of them is orthonormal.
    bound = LARGEST * m
    if math.prod(norms) ** 2 <= bound:
        return None
    return None if _norm(compressed.dense()) ** 2 <= bound else f"{what} {NOT_FINITE} once they are squared"


def _norm(value: Tensor) -> float:
    return float(torch.linalg.vector_norm(value, dtype=torch.float64))


def _inner_products(residual: Tensor) -> str | None:
    """Why a matrix cannot be DᵀD: squared norms are not negative, and |⟨x, y⟩| = |⟨y, x⟩| ≤ ‖x‖‖y‖.

    Of the other Gram terms only the client knows enough: they may be of any size and sign, and are not symmetric. A lie
    in them stays possible and moves the weights; that these stay weights is FedCMOO's own care.
    """
    R = residual.double()
    squared = R.diagonal()
    if bool((squared < 0).any()):
        return "Gram terms with a negative squared norm"
    norms = (squared + NOTHING).sqrt()
    largest = norms[:, None] * norms
    if bool((R.abs() > (1 + ROUNDING) * largest).any()) or bool(((R - R.mT).abs() > ROUNDING * largest).any()):
        return "Gram terms that are no inner products"
    return None


def _numbers(value: Tensor, shape: tuple[int, ...], what: str) -> str | None:
    return _shaped(value, shape, what) or (None if _finite(value) else f"{what} {NOT_FINITE}")


def _shaped(value: Tensor, shape: tuple[int, ...], what: str) -> str | None:
    return None if tuple(value.shape) == shape else f"{what} of shape {tuple(value.shape)} instead of {shape}"


def _finite(value: Tensor) -> bool:
    """Whether all numbers are finite. A finite sum says so at a quarter of the cost; one that is not may overflow."""
    return bool(torch.isfinite(value.sum())) or bool(torch.isfinite(value).all())
