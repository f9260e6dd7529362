r"""The reference watch: what a run does when its reports come close to their reference, or pass it.

FedHV's weights mean something only while every loss stays below its reference. Three things are watched in the raw
slacks $r_i - \hat F_i$ of a round: one below a threshold, one below the floor ρ_clip, and a loss above its reference.
A policy says what follows:

- `warn`: it is recorded and shown, and the run goes on with floored slacks, as in the paper.
- `stop`: the run stops before the round is taken.
- `recalibrate`: the reference is raised by the rule that gave it, $r_i \leftarrow \max\{r_i, \hat F_i + \delta_r\}$
  (the componentwise maximum of all reports so far, plus the margin), recorded with its round, and the run goes on.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from fedhv.support.errors import FedHVError, InputError
from fedhv.support.numbers import is_number

Policy = Literal["warn", "stop", "recalibrate"]


@dataclass(frozen=True)
class Breach:
    """A task whose slack is too small."""

    task: int
    slack: float
    event: Literal["low slack", "floored", "above reference"]

    def as_dict(self) -> dict[str, Any]:
        """As the history has it, in its list `watch`."""
        return {"task": self.task, "slack": self.slack, "event": self.event}


class ReferenceBreached(FedHVError):
    """A run that was to stop when a slack is too small."""

    def __init__(self, message: str, breaches: Sequence[Breach] = ()) -> None:
        super().__init__(message)
        self.breaches = tuple(breaches)

    def named(self, tasks: Sequence[str]) -> ReferenceBreached:
        """The same with the tasks' names."""
        found = ", ".join(f"'{tasks[each.task]}' {each.event} (slack {each.slack:.4g})" for each in self.breaches)
        return ReferenceBreached(f"{self} Found {found}.", self.breaches)


def too_low(summary: Mapping[str, Any]) -> str | None:
    """What a run's summary says about its reference, as a sentence without its end; None where it held."""
    watch = summary.get("watch")
    if not watch:
        return None
    count, raised = watch["rounds"], ", ".join(str(each["round"]) for each in watch["raised"])
    return (
        f"the reference was too low in {count} round{'s' if count > 1 else ''}, first in round {watch['first_round']}, "
        f"lowest slack {watch['lowest_slack']:.4g}" + (f"; raised in round {raised}" if raised else "")
    )


def warn_of(summary: Mapping[str, Any]) -> None:
    """Warn a caller whom nobody else tells that a reference did not hold, unless it was raised as asked."""
    said = too_low(summary)
    if said and not summary["watch"]["raised"]:
        run = f"{summary['method']} seed {summary['seed']}"
        warnings.warn(f"{run}: {said}. Calibrate it anew, or with a larger margin.", stacklevel=3)


def check_watch(policy: object, slack: object, margin: object) -> None:
    """Refuse a policy that there is not, and numbers that mean nothing."""
    if policy not in get_args(Policy):
        raise InputError(f"`watch` should be 'warn', 'stop' or 'recalibrate'. Found `watch = {policy!r}`.")
    for name, value, least in (("watch_slack", slack, "at least 0"), ("watch_margin", margin, "positive")):
        if not is_number(value) or not 0 <= value < float("inf") or (name == "watch_margin" and value == 0):
            raise InputError(f"`{name}` should be {least}. Found `{name} = {value!r}`.")


def breaches(slacks: Tensor, floor: float, threshold: float) -> list[Breach]:
    """The tasks whose raw slack is below the threshold, the floor or zero, each with the gravest of these."""
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
