"""The points of a front: one method several times, over preferences, fixed weights or its knob."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedhv.methods import Method
from fedhv.methods.knobs import KNOBS, Knob
from fedhv.runs.tuning import checked_ranges, halton
from fedhv.runs.variants import Variant
from fedhv.support.errors import Diverged, InputError, unknown
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
    over = varied(method, over)
    values: tuple[Any, ...]
    if over == PREFERENCES:
        values = tuple(preference_points(points, tasks))
    else:
        knob = _knob(method, over)
        if over in ranges:
            knob = Knob(over, *ranges[over], least=_least(method, over))
        if knob is None:
            raise InputError(f"`{over}` of method '{method.label}' needs a range: --range {over}=LOW:HIGH.")
        values = tuple(knob.at(i / max(points - 1, 1)) for i in range(points))
    stem = f"{method.label}-{over}".replace(":", "-")
    variants = tuple(Variant(f"{stem}-{i}", _with(method, over, value)) for i, value in enumerate(values))
    return FrontMethod(method, over, values, variants)


def varied(method: Method, over: str | None) -> str:
    """What varies along a method's front: `over`, its preferences, or its knob."""
    names = {each.name for each in dataclasses.fields(method) if each.init}
    knob = KNOBS.get(method.label)
    over = over or (PREFERENCES if PREFERENCES in names else knob.key if knob else None)
    if over is None:
        raise InputError(f"Method '{method.label}' takes no preferences and has no knob. Show it with --beside.")
    if over not in names:
        raise unknown(f"hyper-parameter of method '{method.label}'", over, names)
    return over


def check_front_ranges(
    ranges: Mapping[str, tuple[float, float]], methods: Sequence[tuple[Method, str | None]]
) -> dict[str, tuple[float, float]]:
    """Ranges by `KEY` or `METHOD.KEY`. Those of what no method varies, and those with wrong ends, are rejected."""
    known: dict[str, float] = {}
    for method, given in methods:
        over = varied(method, given)
        if over != PREFERENCES:
            least = _least(method, over)
            known |= {over: max(least, known.get(over, 0.0)), f"{method.label}.{over}": least}
    return checked_ranges(ranges, known)


def _knob(method: Method, over: str) -> Knob | None:
    """The method's knob, if it is this hyper-parameter."""
    knob = KNOBS.get(method.label)
    return knob if knob is not None and knob.key == over else None


def _least(method: Method, over: str) -> float:
    knob = _knob(method, over)
    return 0.0 if knob is None else knob.least


def _with(method: Method, over: str, value: Any) -> Method:
    """The method with a value of a hyper-parameter; an error if it takes no numbers."""
    changes: dict[str, Any] = {over: value}
    try:
        return dataclasses.replace(method, **changes)
    except TypeError:
        raise InputError(
            f"`{over}` of method '{method.label}' is not a number. A front varies preferences or a number."
        ) from None


def beside(method: Method) -> FrontMethod:
    """A method that is one point beside the fronts."""
    return FrontMethod(method, None, (None,), (Variant(method.label.replace(":", "-"), method),))


@dataclass(frozen=True)
class DivergedPoint:
    """A point that is not in a front, because its run diverged with some seeds.

    Attributes:
        label: Of the method in the front.
        over: What varies along the method's front; None for a method beside the fronts.
        value: The preferences or the value of the hyper-parameter.
        seeds: The seeds whose runs diverged.
    """

    label: str
    over: str | None
    value: Any
    seeds: tuple[int, ...]

    def __str__(self) -> str:
        numbers = self.value if isinstance(self.value, tuple) else (self.value,)
        at = "" if self.over is None else f" at {self.over} {', '.join(f'{each:g}' for each in numbers)}"
        seeds = f"seed{'s' if len(self.seeds) > 1 else ''} {', '.join(map(str, self.seeds))}"
        return f"{self.label}{at} diverged with {seeds}"


def whole_points(
    found: Sequence[FrontMethod], seeds: Sequence[int], finished: Collection[Path | None], folder: Path
) -> tuple[list[FrontMethod], tuple[DivergedPoint, ...]]:
    """The methods with the points whose runs have finished with every seed, and the other points.

    A method without such a point is left out; an error if no method has one.
    """
    kept, diverged = [], []
    for each in found:
        whole = []
        for value, variant in zip(each.values, each.variants, strict=True):
            lost = tuple(seed for seed in seeds if variant.place(folder, seed) not in finished)
            if lost:
                diverged.append(DivergedPoint(each.label, each.over, value, lost))
            else:
                whole.append((value, variant))
        if whole:
            values, variants = zip(*whole, strict=True)
            kept.append(dataclasses.replace(each, values=values, variants=variants))
    if not kept:
        raise Diverged(
            f"At every point of the front a run diverged: {'; '.join(map(str, diverged))}. Try smaller learning rates."
        )
    return kept, tuple(diverged)


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


def check_points(points: int) -> None:
    """Reject a front of fewer than two points."""
    if not is_whole(points) or points < 2:
        raise InputError(f"A front should have at least 2 points. Found {points!r}.")
