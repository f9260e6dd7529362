"""GramTerms: what completes FedCMOO's Gram estimate. Down the sum of all C_k, compressed; up two m × m matrices."""

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
"""How far inner products may be from what they should be, relative to the norms: those of tensor cores pass."""
NOTHING = 1e-30
"""A squared norm below which inner products in single precision have lost what they should be."""


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
    """What only a client can add to the Gram estimate, since it alone knows what its compression left out."""

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
        yield from ()  # a script, although it needs no computation of an engine
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

        Of the other Gram terms only the client knows enough: they may be of any size and sign, and are not symmetric. A
        lie in them stays possible and moves the weights; that these stay weights is FedCMOO's own care.
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
