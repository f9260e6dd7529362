"""Preferences: the importance of each task to the user, in addition to a rule's weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from fedhv.methods.base import Method
from fedhv.methods.reporting import ReportingMethod
from fedhv.support.errors import InputError, unknown
from fedhv.support.numbers import is_number


@dataclass(frozen=True, kw_only=True)
class PreferenceMethod(ReportingMethod):
    """A method that reads reports and takes preferences.

    Attributes:
        preferences: p, one number per task, not negative; only their ratios count. None means equal preferences.
    """

    preferences: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "preferences", checked_preferences(self.label, self.preferences))

    def check(self, tasks: int) -> None:
        """Reject preferences of another number of tasks."""
        super().check(tasks)
        check_number(self.label, self.preferences, tasks)


def checked_preferences(label: str, preferences: Any) -> tuple[float, ...] | None:
    """The preferences as numbers. Invalid ones are rejected."""
    p = preferences
    if p is None:
        return None
    if isinstance(p, str) or not isinstance(p, Sequence) or not all(is_number(each) for each in p):
        raise InputError(f"Method '{label}': `preferences` should be one number per task. Found {p!r}.")
    if not all(0 <= each < float("inf") for each in p) or not sum(p) > 0:
        raise InputError(
            f"Method '{label}': `preferences` should be finite, not negative and not all zero. Found {list(p)}."
        )
    return tuple(float(each) for each in p)


def check_number(label: str, preferences: Sequence[float] | None, tasks: int) -> None:
    """Reject preferences of another number of tasks."""
    if preferences is not None and len(preferences) != tasks:
        raise InputError(
            f"Method '{label}': `preferences` should have one number per task ({tasks}). Found {len(preferences)}."
        )


def shares(preferences: Sequence[float] | None, tasks: int) -> Tensor:
    """The preferences on the simplex, in double precision; 1/m each if there are none."""
    p = (
        torch.ones(tasks, dtype=torch.float64)
        if preferences is None
        else torch.tensor(preferences, dtype=torch.float64)
    )
    return p / p.sum()


def with_preferences(method: Method, preferences: Mapping[str, float], tasks: Sequence[str]) -> Method:
    """The method with the preferences of a setting, given by task name. Preferences of the method take precedence.

    Args:
        method: Any method; one without preferences is rejected.
        preferences: A number for every task.
        tasks: The tasks' names, in their order.
    """
    if not any(each.name == "preferences" and each.init for each in fields(method)):
        raise InputError(f"Method '{method.label}' takes no preferences. Leave out [preferences].")
    for name in preferences:
        if name not in tasks:
            raise unknown("task in [preferences]", name, tasks)
    missing = [name for name in tasks if name not in preferences]
    if missing:
        raise InputError(f"[preferences] should name every task. Found none for {', '.join(missing)}.")
    if getattr(method, "preferences", None) is not None:
        return method
    changes: dict[str, Any] = {"preferences": tuple(preferences[name] for name in tasks)}
    return replace(method, **changes)
