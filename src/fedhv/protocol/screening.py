"""The server's screening of replies. The simulator and Flower use the same rules.

Each reply is checked before it is averaged: its kind, its shapes, that all numbers are finite, and that losses are not
negative. A refused reply is left out of the round and recorded. The round continues with the other clients if there are
at least `min_replies` of them. Otherwise the round is repeated, at most `attempts` times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fedhv.protocol.fields import Shape, TensorField, tensor_fields
from fedhv.support.errors import FedHVError, InputError
from fedhv.support.wording import counted

if TYPE_CHECKING:  # a setting's [server] is read without PyTorch
    from torch import Tensor

    from fedhv.problem.parameters import Layout
    from fedhv.protocol.request import Refusal, Reply, Request

NOT_FINITE = "with numbers that are not finite"


class TooFewReplies(FedHVError):
    """A round has too few replies. The state before it is kept, and the round may be repeated."""

    lost: bool = False
    """Whether replies arrived and none of them was finite: a sign of divergence, not of faults."""


@dataclass(frozen=True)
class Screening:
    """The server's bounds on replies, and the number of replies that it needs.

    Attributes:
        min_replies: The number of replies that every exchange of a round needs.
        attempts: How often a round is tried before the run stops.
        max_update: The largest norm of an update; None accepts any finite one.
        max_report: The largest reported loss; None accepts any finite one.
        outlier: An update whose norm exceeds this multiple of its cohort's median is refused; None accepts any.
            With fewer than three replies there is no majority to compare with, and nothing is refused. On Flower it is
            10 unless it is set; inf takes any there too.
        report_outlier: The same of every reported loss, task by task.
        max_jump: A round ends the run, before it is recorded, if its step is longer than the model and more than this
            multiple of the longest step before it; inf takes any.
        aggregate: How updates are combined: their "mean", or coordinate by coordinate their "median" or "trimmed" mean.
        trim: Of "trimmed": the share of updates that is cut at either end.
        quorum: On Flower, an exchange waits `grace` seconds longer after this number of replies: a whole number, or a
            share of those who were asked. None waits for all, up to the deadline.
        grace: Seconds that an exchange continues after its quorum.
    """

    min_replies: int = 1
    attempts: int = 3
    max_update: float | None = None
    max_report: float | None = None
    outlier: float | None = None
    report_outlier: float | None = None
    max_jump: float = 30.0
    aggregate: Literal["mean", "median", "trimmed"] = "mean"
    trim: float = 0.1
    quorum: float | None = None
    grace: float = 10.0

    def __post_init__(self) -> None:
        for name in ("min_replies", "attempts"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"`{name}` should be a whole number from 1. Found `{name} = {value!r}`.")
        for name in ("max_update", "max_report"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise InputError(f"`{name}` should be positive. Found `{name} = {value}`.")
        for name in ("outlier", "report_outlier"):
            value = getattr(self, name)
            if value is not None and not value > 1:
                raise InputError(f"`{name}` should be more than 1. Found `{name} = {value}`.")
        if not self.max_jump > 1:
            raise InputError(f"`max_jump` should be more than 1. Found `max_jump = {self.max_jump}`.")
        if self.aggregate not in ("mean", "median", "trimmed"):
            raise InputError(
                f"`server.aggregate` should be 'mean', 'median' or 'trimmed'. Found `aggregate = {self.aggregate!r}`."
            )
        if not 0 <= self.trim < 0.5:
            raise InputError(f"`server.trim` should be in [0, 0.5). Found `trim = {self.trim}`.")
        if self.quorum is not None and not (0 < self.quorum < 1 or (self.quorum >= 1 and self.quorum % 1 == 0)):
            raise InputError(
                "`quorum` should be a whole number of replies, or a fraction in (0, 1) of the clients that are asked. "
                f"Found `quorum = {self.quorum}`."
            )
        if not 0 <= self.grace < float("inf"):
            raise InputError(f"`grace` should be a finite number of seconds from 0. Found `grace = {self.grace}`.")

    @property
    def compares(self) -> bool:
        """Whether replies are judged by those of the others, so that all of them have to be there first."""
        return self.aggregate != "mean" or any(
            bound is not None and bound < float("inf") for bound in (self.outlier, self.report_outlier)
        )

    def enough(self, asked: int) -> int | None:
        """The number of replies after which an exchange with these clients may close; None if it waits for all."""
        if self.quorum is None:
            return None
        wanted = math.ceil(self.quorum * asked - 1e-9) if self.quorum < 1 else int(self.quorum)
        return min(asked, max(wanted, self.min_replies))

    def objection(self, request: Request, layout: Layout, reply: Reply) -> str | None:
        """Why a reply is refused, in a few words; None if it is accepted."""
        if not isinstance(reply, request.reply):
            return f"a {type(reply).__name__} in answer to {type(request).__name__}"
        about, shapes = tensor_fields(request.reply), request.reply_shapes(layout)
        for name in about:
            if getattr(reply, name) is not None and not request.asks_for(name, layout):
                return f"'{name}', which was not asked for"
        for name, each in about.items():
            value = getattr(reply, name)
            if value is None:
                if request.asks_for(name, layout):
                    return f"no {name}"
            elif objection := self._tensor(each, value, shapes[name]):
                return objection
        return request.objection(reply, layout)

    def check_enough(self, taken: int, refused: Sequence[Refusal]) -> None:
        """Raise an error if too few replies are left."""
        if taken < self.min_replies:
            reasons = ", ".join(f"client {r.client}: {r.reason}" for r in refused[:5])
            more = f" and {len(refused) - 5} more" if len(refused) > 5 else ""
            few = TooFewReplies(
                f"A round needs {counted(self.min_replies, 'reply', 'replies')} (`min_replies`). "
                f"Found {taken}; left out: {reasons}{more}."
            )
            arrived = [refusal for refusal in refused if NOT_FINITE in refusal.reason]
            few.lost = taken == 0 and bool(arrived) and len(arrived) == sum(refusal.sent for refusal in refused)
            raise few

    def _tensor(self, about: TensorField, value: Tensor, shape: Shape) -> str | None:
        if not about.screened:
            return None
        objection = _numbers(value, shape, about.label)
        if objection is not None:
            return objection
        if about.bound == "update" and self.max_update is not None:
            norm = float(value.double().norm(dim=-1).max())
            return f"an update of norm {norm:.3g}" if norm > self.max_update else None
        if about.bound == "count" and bool((value < 0).any()):
            return "a negative number of labels"
        if about.bound == "score" and bool(((value < 0) | (value > 1)).any()):
            return "a score outside [0, 1]"
        if about.bound == "report":
            if bool((value < 0).any()):
                return "a negative loss in the report"
            if self.max_report is not None and float(value.max()) > self.max_report:
                return f"a reported loss of {float(value.max()):.3g}"
        return None

    def doubtful(self, about: TensorField, stack: Tensor) -> Tensor:
        """The rows of a stack of replies that a cheap test cannot accept; these are then checked one by one."""
        import torch

        flags = ~torch.isfinite(stack.flatten(1).sum(dim=1))
        if about.bound == "update" and self.max_update is not None:
            norms = torch.linalg.vector_norm(stack, dim=-1).reshape(len(stack), -1).amax(dim=1)
            flags |= ~(norms < 0.999 * self.max_update)
        if about.bound in ("report", "score", "count"):
            flags |= (stack < 0).flatten(1).any(dim=1)
            if about.bound == "score":
                flags |= (stack > 1).flatten(1).any(dim=1)
            if about.bound == "report" and self.max_report is not None:
                flags |= (stack > self.max_report).flatten(1).any(dim=1)
        return flags


def _numbers(value: Tensor, shape: Shape, what: str) -> str | None:
    return _shaped(value, shape, what) or (None if _finite(value) else f"{what} {NOT_FINITE}")


def _shaped(value: Tensor, shape: Shape, what: str) -> str | None:
    return None if tuple(value.shape) == shape else f"{what} of shape {tuple(value.shape)} instead of {shape}"


def _finite(value: Tensor) -> bool:
    """Whether all numbers are finite. A finite sum proves it at a quarter of the cost; the sum may also overflow."""
    import torch

    return bool(torch.isfinite(value.sum())) or bool(torch.isfinite(value).all())
