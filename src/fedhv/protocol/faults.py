"""Simulated client failures, configured in a setting's `[faults]` and fixed by the seed.

A client has at most one fault in a round. `Faults.of` is a function of (seed, round, client), so runs with faults are
reproducible on every engine and after interruptions.
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
    """The kinds of faults."""

    DROP_OUT = "drop_out"
    LATE = "late"
    CRASH = "crash"
    NON_FINITE = "non_finite"
    ABSURD = "absurd"
    FALSE_REPORT = "false_report"


SILENT = {Fault.DROP_OUT: "no answer", Fault.CRASH: "crashed", Fault.LATE: "answered after the deadline"}
"""Faults without a reply in time, and the reason that the server records."""


@dataclass(frozen=True)
class Faults:
    """The rates of client faults. Every rate is a fraction of the clients of a round; their sum is at most 1.

    Attributes:
        drop_out: The client never replies.
        late: The client replies after the deadline. The bytes are counted and the reply is not used.
        crash: The client crashes while it trains. Earlier exchanges of the round are counted.
        non_finite: The client sends NaN instead of its update.
        absurd: The client sends its update multiplied by `scale`.
        false_report: The client trains honestly and reports `claim` instead of its losses.
        scale: The factor of an absurd update; −1 reverses it.
        claim: The false report: one number for all tasks, or one per task. It may be nan or inf.
        pattern: "afresh": every round draws its faulty clients. "same": the faulty clients are the same in all rounds.
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
        """Whether any rate is positive."""
        return any(self.rates.values())

    def of(self, seed: int, round: int, client: int, attempt: int = 0) -> Fault | None:
        """The fault of a client in a round, or None. A repeated round has new draws."""
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
        """Reject a list of claims whose length is not the number of tasks."""
        if isinstance(self.claim, tuple) and len(self.claim) != tasks:
            raise InputError(f"`faults.claim` should be one number, or a list of {tasks}. Found {list(self.claim)}.")

    def corrupt(self, fault: Fault, reply: Reply) -> Reply:
        """The reply that the server receives instead of an honest one."""
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
        """The false report that replaces an honest one."""
        import torch

        return torch.empty_like(report).copy_(torch.tensor(self.claim).expand(report.shape))


NO_FAULTS = Faults()


def silent(fault: Fault | None, request: Request) -> bool:
    """Whether a client with this fault sends no usable reply to a request.

    A client that drops out never replies. A client that crashes or is late fails in the training request only.
    """
    return fault is Fault.DROP_OUT or (request.trains and fault in (Fault.CRASH, Fault.LATE))
