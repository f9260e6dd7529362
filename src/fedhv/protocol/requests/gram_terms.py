"""GramTerms: the terms that complete FedCMOO's Gram estimate. Down the compressed Σ C_k; up two m × m matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedhv.problem.parameters import Layout
from fedhv.protocol.compression import Compressed, inner_products
from fedhv.protocol.fields import Shape, tensor
from fedhv.protocol.request import Replies, Reply, Request, Size
from fedhv.protocol.requests.task_gradients import factor_shapes
from fedhv.protocol.script import Member, Script

WHAT = "Gram terms"
ROUNDING = 1e-2
"""The tolerance of inner products relative to the norms; products of tensor cores are within it."""
NOTHING = 1e-30
"""Below this squared norm, inner products in single precision have no correct digits."""


@dataclass(frozen=True)
class GramTermsReply(Reply):
    """AᵀA + Cᵀ(S−C) + 2Dᵀ(S−C) and DᵀD of one client, with D = A − C."""

    known: Tensor = tensor("m", "m", label=WHAT, combine="each")
    residual: Tensor = tensor("m", "m", label=WHAT, combine="each")


@dataclass(frozen=True)
class GramTermReplies(Replies):
    """Sums over the cohort."""

    known: Tensor
    residual: Tensor


@dataclass(frozen=True)
class GramTerms(Request):
    """The part of the Gram estimate that only a client can compute, because it knows its compression error."""

    name: ClassVar[str] = "gram_terms"
    reply: ClassVar[type[Reply]] = GramTermsReply

    left: Tensor = tensor(computed=True, label="compressed sum")
    right: Tensor = tensor(computed=True, label="compressed sum")
    extra_upload: float = 1.0

    @classmethod
    def of(cls, total: Compressed, extra_upload: float) -> GramTerms:
        """The request for S, the compressed sum of all compressed gradients."""
        return cls(total.left, total.right, extra_upload)

    def answer(self, me: Member) -> Script:
        """A client's part in the estimate."""
        shape = (me.layout.d_shared, me.layout.tasks)
        gradients, left, right = (me.recall(name, "task gradients") for name in ("gradients", "left", "right"))
        S = Compressed(self.left, self.right, shape).dense()
        A, C = me.layout.shared(gradients).T, Compressed(left, right, shape).dense()
        D, others = A - C, S - C
        known = inner_products(A, A) + inner_products(C, others) + 2 * inner_products(D, others)
        yield from ()  # makes this a script, although it needs no computation of an engine
        return GramTermsReply(known, inner_products(D, D))

    @classmethod
    def shapes(cls, layout: Layout, values: Mapping[str, Any]) -> dict[str, Shape]:
        """Those of the two factors."""
        return factor_shapes(layout, values["extra_upload"])

    def down(self, layout: Layout) -> Size:
        """The budget."""
        return {"compressed sum": round(self.extra_upload * layout.d_shared)}

    def replies(self, answers: Replies) -> GramTermReplies:
        """The sums, in double precision."""
        m = answers.layout.tasks
        known, residual = (
            torch.zeros(m, m, dtype=torch.float64) if stack is None else stack.double().sum(dim=0)
            for stack in (answers.stacks["known"], answers.stacks["residual"])
        )
        return answers.named(GramTermReplies, known=known, residual=residual)

    def objection(self, reply: Any, layout: Layout) -> str | None:
        """Why a matrix cannot be DᵀD: squared norms are not negative, and |⟨x, y⟩| = |⟨y, x⟩| ≤ ‖x‖‖y‖.

        The other Gram terms cannot be checked: they may have any size and sign, and are not symmetric. A false value
        moves the weights; FedCMOO itself checks that the result is on the simplex.
        """
        R = reply.residual.cpu().double()
        squared = R.diagonal()
        if bool((squared < 0).any()):
            return f"{WHAT} with a negative squared norm"
        norms = (squared + NOTHING).sqrt()
        largest = norms[:, None] * norms
        if bool((R.abs() > (1 + ROUNDING) * largest).any()) or bool(((R - R.mT).abs() > ROUNDING * largest).any()):
            return f"{WHAT} that are no inner products"
        return None
