"""Clients that fail, as a setting's `[faults]` says: who, in which round and how is fixed by the seed.

A client has at most one fault in a round. `Faults.of` is a function of (seed, round, client), so that faulty runs
are as reproducible as others, on every engine and after any interruption.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from fedhv.problem.random import Purpose, stream
from fedhv.protocol.fields import tensor_fields
from fedhv.support.errors import InputError

if TYPE_CHECKING:  # a setting's [faults] is read without PyTorch
    from torch import Tensor

    from fedhv.protocol.request import Reply, Request


class Fault(StrEnum):
    """What goes wrong with a client."""

    DROP_OUT = "drop_out"
    LATE = "late"
    CRASH = "crash"
    NON_FINITE = "non_finite"
    ABSURD = "absurd"
    FALSE_REPORT = "false_report"


SILENT = {Fault.DROP_OUT: "no answer", Fault.CRASH: "crashed", Fault.LATE: "answered after the deadline"}
"""Faults whose answer does not arrive in time, and what the server notes."""


@dataclass(frozen=True)
class Faults:
    """How often clients fail and how. Every rate is a share of the clients of a round; together at most 1.

    Attributes:
        drop_out: Never answers.
        late: Answers, but after the deadline: the bytes are spent and the answer is not used.
        crash: Is lost while it trains; what it sent in earlier exchanges of the round was sent.
        non_finite: Sends NaN instead of its update.
        absurd: Sends its update `scale` times as large.
        false_report: Trains honestly and reports `claim` instead of its losses.
        scale: Of an absurd update; −1 turns an update around.
        claim: The false report: one number for all tasks, or one for every task. It may be nan or inf.
        pattern: "afresh": every round draws its faulty clients anew. "same": those who fail always fail.
    """

    drop_out: float = 0.0
    late: float = 0.0
    crash: float = 0.0
    non_finite: float = 0.0
    absurd: float = 0.0
    false_report: float = 0.0
    scale: float = 1e6
    claim: float | tuple[float, ...] = 1e9
    pattern: Literal["afresh", "same"] = "afresh"

    def __post_init__(self) -> None:
        for fault, rate in self.rates.items():
            if not 0 <= rate <= 1:
                raise InputError(f"`faults.{fault}` should be a rate from 0 to 1. Found {rate}.")
        if sum(self.rates.values()) > 1 + 1e-9:
            raise InputError(
                f"The rates in [faults] should add up to at most 1. Found {sum(self.rates.values()):g}: a client has "
                "one fault at a time."
            )
        if not math.isfinite(self.scale):
            raise InputError(f"`faults.scale` should be finite. Found {self.scale}; for NaN use `non_finite`.")
        if self.claim == ():
            raise InputError("`faults.claim` should be a number, or one for every task. Found an empty list.")
        if self.pattern not in ("afresh", "same"):
            raise InputError(f"`faults.pattern` should be 'afresh' or 'same'. Found '{self.pattern}'.")

    @cached_property
    def rates(self) -> dict[Fault, float]:
        """The share of clients with each fault."""
        return {fault: getattr(self, fault) for fault in Fault}

    @cached_property
    def any(self) -> bool:
        """Whether there are faults at all; every reply asks."""
        return any(self.rates.values())

    def of(self, seed: int, round: int, client: int, attempt: int = 0) -> Fault | None:
        """What goes wrong with a client in a round, if anything; a repeated round draws anew."""
        if not self.any:
            return None
        if self.pattern == "same":
            round, attempt = 0, 0
        point = stream(seed, Purpose.FAULTS, round, client, attempt).random()
        for fault, rate in self.rates.items():
            if point < rate:
                return fault
            point -= rate
        return None

    def check(self, tasks: int) -> None:
        """Refuse claims for another number of tasks."""
        if isinstance(self.claim, tuple) and len(self.claim) != tasks:
            raise InputError(f"`faults.claim` should be one number, or a list of {tasks}. Found {list(self.claim)}.")

    def corrupt(self, fault: Fault, reply: Reply) -> Reply:
        """What the server receives in the place of an honest reply."""
        about = {name: each for name, each in tensor_fields(type(reply)).items() if getattr(reply, name) is not None}
        changed: dict[str, Tensor] = {}
        match fault:
            case Fault.FALSE_REPORT:
                changed = {n: self.claimed(getattr(reply, n)) for n, each in about.items() if each.bound == "report"}
            case Fault.NON_FINITE | Fault.ABSURD:
                factor = math.nan if fault is Fault.NON_FINITE else self.scale
                changed = {name: getattr(reply, name) * factor for name, each in about.items() if each.corruptible}
        return replace(reply, **changed)

    def claimed(self, report: Tensor) -> Tensor:
        """The false report in the place of an honest one."""
        import torch

        return torch.empty_like(report).copy_(torch.tensor(self.claim).expand(report.shape))


NO_FAULTS = Faults()


def silent(fault: Fault | None, request: Request) -> bool:
    """Whether a client with this fault leaves a request without a usable answer.

    Who drops out never answers; who crashes or is late does so where the work is, in training.
    """
    return fault is Fault.DROP_OUT or (request.trains and fault in (Fault.CRASH, Fault.LATE))
