"""The points of a front: one method several times, over preferences, fixed weights or its knob."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedhv.methods import Method
from fedhv.methods.knobs import KNOBS, Knob
from fedhv.runs.tuning import check_range, halton
from fedhv.runs.variants import Variant
from fedhv.support.errors import InputError
from fedhv.support.numbers import is_whole

PREFERENCES = "preferences"
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71)
"""The bases of the Halton sequence: one for each task."""


@dataclass(frozen=True)
class FrontMethod:
    """A method of a front and what varies along it.

    Attributes:
        method: With the setting's hyper-parameters.
        over: "preferences", the name of a hyper-parameter, or None for a method that is one point beside the fronts.
        values: Of every point; None if the method is one point.
        variants: The method with these values.
    """

    method: Method
    over: str | None
    values: tuple[Any, ...]
    variants: tuple[Variant, ...]

    @property
    def label(self) -> str:
        """The name in tables and figures."""
        over = self.over
        return self.method.label if over in (None, PREFERENCES) else f"{self.method.label} ({over})"


def front_of(
    method: Method, over: str | None, points: int, tasks: int, ranges: Mapping[str, tuple[float, float]]
) -> FrontMethod:
    """A method along its preferences or a hyper-parameter; by default preferences where the method takes them.

    Fixed weights are the preferences of the method "fixed". A hyper-parameter without a known range needs one in
    `ranges`, by its name.
    """
    names = {each.name for each in dataclasses.fields(method)}
    knob = KNOBS.get(method.label)
    over = over or (PREFERENCES if PREFERENCES in names else knob.key if knob else None)
    if over is None:
        raise InputError(f"Method '{method.label}' takes no preferences and has no knob. Show it with --beside.")
    if over not in names:
        raise InputError(f"Method '{method.label}' has no hyper-parameter '{over}'.")
    values: tuple[Any, ...]
    if over == PREFERENCES:
        values = tuple(preference_points(points, tasks))
    else:
        if over in ranges:
            least = knob.least if knob and knob.key == over else 0.0
            knob = Knob(over, *check_range(over, ranges[over], least), least=least)
        if knob is None or knob.key != over:
            raise InputError(f"`{over}` of method '{method.label}' needs a range: --range {over}=LOW:HIGH.")
        values = tuple(knob.at(i / max(points - 1, 1)) for i in range(points))
    stem = f"{method.label}-{over}".replace(":", "-")
    changed: list[dict[str, Any]] = [{over: value} for value in values]
    return FrontMethod(
        method,
        over,
        values,
        tuple(Variant(f"{stem}-{i}", dataclasses.replace(method, **each)) for i, each in enumerate(changed)),
    )


def beside(method: Method) -> FrontMethod:
    """A method that is one point beside the fronts."""
    return FrontMethod(method, None, (None,), (Variant(method.label.replace(":", "-"), method),))


def preference_points(points: int, tasks: int) -> list[tuple[float, ...]]:
    """Preferences that cover the simplex, every one positive, with six digits.

    Two tasks: k/(K + 1) and the rest. More tasks: equal preferences, then points of a Halton sequence that is uniform
    on the simplex.
    """
    if tasks < 2:
        raise InputError("A front over preferences should have at least two tasks. Found one.")
    if tasks > len(PRIMES):
        raise InputError(f"A front over preferences has at most {len(PRIMES)} tasks. Found {tasks}.")
    if tasks == 2:
        firsts = [k / (points + 1) for k in range(1, points + 1)]
        return [(round(first, 6), round(1 - first, 6)) for first in firsts]
    found = [(round(1 / tasks, 6),) * tasks]
    for k in range(1, points):
        raw = [-math.log(halton(k, base)) for base in PRIMES[:tasks]]
        found.append(tuple(round(each / sum(raw), 6) for each in raw))
    return found


def check_used(ranges: Mapping[str, Any], fronts: Sequence[FrontMethod]) -> None:
    """Reject ranges of hyper-parameters that no front varies."""
    if not isinstance(ranges, Mapping):
        raise InputError(f"`ranges` should be a dict of (low, high) by name. Found {ranges!r}.")
    for key in ranges:
        if key not in {each.over for each in fronts}:
            raise InputError(
                f"The range of `{key}` would be ignored: no front varies it. Name its method as METHOD@{key}, or leave "
                "it out."
            )


def check_points(points: int) -> None:
    """Reject a front of fewer than two points."""
    if not is_whole(points) or points < 2:
        raise InputError(f"A front should have at least 2 points. Found {points!r}.")
