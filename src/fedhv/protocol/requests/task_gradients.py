"""TaskGradients: m task gradients, compressed. Down θ; up the factors of the compression. FedCMOO's first exchange."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedhv.problem.parameters import Layout
from fedhv.protocol.compression import Compressed, stack_shape
from fedhv.protocol.fields import Shape, tensor
from fedhv.protocol.request import Replies, Reply, Request, Size
from fedhv.protocol.rows import rows
from fedhv.protocol.screening import NOT_FINITE
from fedhv.protocol.script import GRADIENT_PART, Compress, Gradient, Member, Script

LARGEST = torch.finfo(torch.float32).max
WHAT = "compressed gradients"


@dataclass(frozen=True)
class TaskGradientsReply(Reply):
    """The factors of C_k, the client's compressed gradients; the gradients themselves stay with the client."""

    left: Tensor = tensor(computed=True, label=WHAT, combine="each", screened=False)
    right: Tensor = tensor(computed=True, label=WHAT, combine="each", screened=False, corruptible=False)

    def compressed(self, layout: Layout) -> Compressed:
        """C_k."""
        return Compressed(self.left, self.right, (layout.d_shared, layout.tasks))


@dataclass(frozen=True)
class TaskGradientReplies(Replies):
    """The compressed gradients of each client."""

    @property
    def compressed(self) -> Iterator[Compressed]:
        """C_k of every client, in the cohort's order."""
        left, right = self.stacks["left"], self.stacks["right"]
        assert left is not None
        assert right is not None
        shape = (self.layout.d_shared, self.layout.tasks)
        return (Compressed(a, b, shape) for a, b in zip(left, right, strict=True))


@dataclass(frozen=True)
class TaskGradients(Request):
    """The m task gradients of one minibatch each, on the shared parameters, compressed.

    The compressed matrix counts as its budget of `extra_upload` times the shared parameters, as in the paper. Until the
    round ends, the client keeps θ, its gradients (m × d) and their compression.
    """

    name: ClassVar[str] = "task_gradients"
    reply: ClassVar[type[Reply]] = TaskGradientsReply

    model: Tensor = tensor("d")
    extra_upload: float = 1.0

    def answer(self, me: Member) -> Script:
        """Each task has a minibatch of its own."""
        tasks = torch.eye(me.layout.tasks)
        gradients = rows((yield [Gradient(self.model, w, GRADIENT_PART + i) for i, w in enumerate(tasks)]))
        C = yield Compress(gradients, self.extra_upload)
        me.memory.round.update(model=self.model, gradients=gradients, left=C.left, right=C.right)
        return TaskGradientsReply(C.left, C.right)

    def gradients(self, layout: Layout, steps: int) -> int:
        """One for every task."""
        return layout.tasks

    def reply_shapes(self, layout: Layout) -> dict[str, Shape]:
        """Those of the two factors."""
        return factor_shapes(layout, self.extra_upload)

    def up(self, layout: Layout) -> Size:
        """The budget."""
        return {WHAT: round(self.extra_upload * layout.d_shared)}

    def replies(self, answers: Replies) -> TaskGradientReplies:
        """The compressed gradients."""
        return answers.named(TaskGradientReplies)

    def objection(self, reply: Any, layout: Layout) -> str | None:
        """Why the factors are refused."""
        for name, shape in self.reply_shapes(layout).items():
            found = tuple(getattr(reply, name).shape)
            if found != shape:
                return f"{WHAT} of shape {found} instead of {shape}"
        norms = [_norm(factor) for factor in (reply.left, reply.right)]  # in double: finite where all numbers are
        if not all(map(math.isfinite, norms)):
            return f"{WHAT} {NOT_FINITE}"
        # Finite factors may have an infinite product C, or one whose inner products with the sum over clients are
        # infinite. For an honest client ‖C‖² ≤ ‖A‖² is a sum of m squared norms, which is finite. The product of the
        # factors' norms is at least ‖C‖, and little more if one factor is orthonormal.
        bound = LARGEST * layout.tasks
        if math.prod(norms) ** 2 <= bound or _norm(reply.compressed(layout).dense()) ** 2 <= bound:
            return None
        return f"{WHAT} {NOT_FINITE} once they are squared"


def factor_shapes(layout: Layout, extra_upload: float) -> dict[str, Shape]:
    """The shapes of the two factors of compressed gradients."""
    lines, columns, rank = stack_shape(layout.d_shared, layout.tasks, extra_upload)
    return {"left": (lines, rank), "right": (rank, columns)}


def _norm(value: Tensor) -> float:
    return float(torch.linalg.vector_norm(value, dtype=torch.float64))
