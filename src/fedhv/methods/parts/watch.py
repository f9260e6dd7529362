r"""The reference watch: what a run does when reported losses approach or exceed their reference.

Weights from slacks are meaningful only while every loss is below its reference. The watch checks the raw slacks
$r_i - \hat F_i$ of a round: below a threshold, below the floor ρ_clip, or negative. Policies:

- `warn`: record and show it, and continue with floored slacks, as in the paper.
- `stop`: stop the run before the round is applied.
- `recalibrate`: raise the reference by the rule of calibration, $r_i \leftarrow \max\{r_i, \hat F_i + \delta_r\}$ (the
  componentwise maximum of all reports so far, plus the margin), record it with its round, and continue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from fedhv.methods.base import Conversation, Method, State, checked_round, reference_of, with_reference
from fedhv.methods.reports import reported_losses
from fedhv.methods.weights import Vector, slacks
from fedhv.protocol.request import Replies
from fedhv.support.errors import FedHVError, InputError
from fedhv.support.numbers import is_number

Policy = Literal["warn", "stop", "recalibrate"]


@dataclass(frozen=True)
class Watch:
    """The thresholds of the watch and its policy.

    Attributes:
        policy: "warn", "stop" or "recalibrate".
        slack: A raw slack below this is too small.
        margin: δ_r of a recalibration.
        floor: ρ_clip; a raw slack below it is too small as well.
    """

    policy: Policy
    slack: float
    margin: float
    floor: float


@dataclass(frozen=True)
class Breach:
    """A task whose slack is too small."""

    task: int
    slack: float
    event: Literal["low slack", "floored", "above reference"]

    def as_dict(self) -> dict[str, Any]:
        """The entry in the history's list `watch`."""
        return {"task": self.task, "slack": self.slack, "event": self.event}


class ReferenceBreached(FedHVError):
    """A slack is too small, and the policy is to stop."""

    def __init__(self, message: str, breaches: Sequence[Breach] = ()) -> None:
        super().__init__(message)
        self.breaches = tuple(breaches)

    def named(self, tasks: Sequence[str]) -> ReferenceBreached:
        """The same error with the names of the tasks."""
        found = ", ".join(f"'{tasks[each.task]}' {each.event} (slack {each.slack:.4g})" for each in self.breaches)
        return ReferenceBreached(f"{self} Found {found}.", self.breaches)


def watched(method: Method, state: State, watch: Watch) -> Conversation:
    """The round of a method with a reference. Reports are compared with the reference before the round receives them.

    A raised reference applies from the round that raises it. That round is restarted with the new reference and
    receives its earlier replies again: a round is a function of its method, its state and its replies.
    """
    kept, seen = state.memory.get("reference"), dict[str, Any]()
    if kept is not None:
        if kept.shape != state.weights.shape:
            found = tuple(kept.shape)
            raise InputError(f"The state's reference should have {len(state.weights)} values. Found {found}.")
        method = with_reference(method, tuple(kept.tolist()))
    conversation, received = checked_round(method, state), list[Replies | None]([None])
    while True:
        try:
            request = conversation.send(received[-1])
        except StopIteration as end:
            after: State = end.value
            memory = {**after.memory, **({} if kept is None else {"reference": kept})}
            return replace(after, memory=memory, record={**after.record, **seen})
        replies = yield request
        if getattr(replies, "reports", None) is not None:
            seen = _seen(reported_losses(replies), reference_of(method), watch)
            if "raised" in seen:
                kept = torch.tensor(seen["raised"], dtype=torch.float64, device=state.model.device)
                method = with_reference(method, tuple(seen["raised"]))
                conversation = checked_round(method, state)
                for earlier in received:
                    conversation.send(earlier)
        received.append(replies)


def _seen(losses: Tensor, reference: Vector, watch: Watch) -> dict[str, Any]:
    """Entries for the history: the slacks that are too small, and the reference if it is raised."""
    found = breaches(slacks(losses, reference), watch.floor, watch.slack)
    if not found:
        return {}
    if watch.policy == "stop":
        raise ReferenceBreached(
            'The reported losses are too close to their reference (`watch = "stop"`). Calibrate with a larger '
            'margin, or start a run with `watch = "recalibrate"`.',
            found,
        )
    seen: dict[str, Any] = {"watch": [each.as_dict() for each in found]}
    if watch.policy == "recalibrate":
        higher = raised(torch.as_tensor(reference, dtype=torch.float64), losses, watch.margin)
        seen["raised"] = higher.tolist()
    return seen


def check_watch(policy: object, slack: object, margin: object) -> None:
    """Reject an unknown policy and invalid numbers."""
    if policy not in get_args(Policy):
        raise InputError(f"`watch` should be 'warn', 'stop' or 'recalibrate'. Found `watch = {policy!r}`.")
    for name, value, least in (("watch_slack", slack, "at least 0"), ("watch_margin", margin, "positive")):
        if not is_number(value) or not 0 <= value < float("inf") or (name == "watch_margin" and value == 0):
            raise InputError(f"`{name}` should be {least}. Found `{name} = {value!r}`.")


def breaches(slacks: Tensor, floor: float, threshold: float) -> list[Breach]:
    """The tasks whose raw slack is below the threshold, the floor or zero, each with the most serious event."""
    found = []
    for task, slack in enumerate(slacks.tolist()):
        if slack < 0:
            found.append(Breach(task, slack, "above reference"))
        elif slack < floor:
            found.append(Breach(task, slack, "floored"))
        elif slack < threshold:
            found.append(Breach(task, slack, "low slack"))
    return found


def raised(reference: Tensor, losses: Tensor, margin: float) -> Tensor:
    r"""$\max\{r, \hat F + \delta_r\}$, componentwise."""
    return torch.maximum(reference, losses + margin)
