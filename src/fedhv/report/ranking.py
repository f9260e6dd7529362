"""Which method is best, and which ones are level with it: by paired differences over seeds, not by means alone.

Runs with the same seed start from the same model and ask the same clients, so methods are compared seed by seed. A
method is the best only if Student's 95 % interval of its difference from every other method excludes 0 in its favour.
Otherwise it is level with the other ones, and no method is called best. One seed decides nothing: a method that shares
fewer than two seeds with the best mean is neither level with it nor behind it. Where methods have different seeds, the
best mean may be worse than another one on the seeds that both have: then it is not the best.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Mapping
from typing import TypeVar

from fedhv.support.statistics import Paired
from fedhv.support.wording import joined

K = TypeVar("K", bound=Hashable)

BEST, LEVEL = 1, 2
"""Ranks of cells: bold, and underlined."""

RULE = (
    "Bold is best: the paired 95 % interval over seeds against every other method excludes 0. Underlined are the best "
    "mean and what is level with it."
)
SHORT_RULE = "bold is best (paired 95 % interval over seeds excludes 0), underlined level with the best mean"
ONE_SEED = "With one seed no method is called best."


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Paired | None:
    """First minus second over their common seeds; None with less than two seeds in which both are finite."""
    common = [first[seed] - second[seed] for seed in first if seed in second]
    common = [each for each in common if math.isfinite(each)]
    return Paired.of(common) if len(common) > 1 else None


def order_of(values: Mapping[K, Mapping[int, float]], higher: bool) -> list[K]:
    """The competitors with finite means, the best mean first."""
    means = {key: _mean(runs) for key, runs in values.items() if runs}
    finite = [key for key, mean in means.items() if math.isfinite(mean)]
    return sorted(finite, key=lambda key: -means[key] if higher else means[key])


def level_with_best(values: Mapping[K, Mapping[int, float]], higher: bool) -> tuple[list[K], list[K]]:
    """The best mean with those that are not told apart from it, and those that share too few seeds with it.

    The best mean is the best where it is alone in the first list and the second one is empty.
    """
    order = order_of(values, higher)
    if not order:
        return [], []
    best, others = order[0], order[1:]
    gaps = {key: paired(values[best], values[key]) for key in others}
    level = [key for key in others if gaps[key] is not None and not ahead(gaps[key], higher)]
    return [best, *level], [key for key in others if gaps[key] is None]


def standing(values: Mapping[K, Mapping[int, float]], higher: bool | None) -> dict[K, int]:
    """`BEST` for the best, or `LEVEL` for those that share its place; nothing where nothing can be told.

    Args:
        values: For every competitor the value of each seed.
        higher: Whether more is better; None where neither is.
    """
    if higher is None or len(order_of(values, higher)) < 2 or not decides(values):
        return {}
    place, unknown = level_with_best(values, higher)
    return {place[0]: BEST} if len(place) == 1 and not unknown else dict.fromkeys(place, LEVEL)


def verdict(values: Mapping[str, Mapping[int, float]], higher: bool) -> str:
    """In words: "fedhv is best", or "fedhv is level with uniform and fedcmoo"."""
    (first, *others), unknown = level_with_best(values, higher)
    behind = [key for key in others if ahead(paired(values[first], values[key]), not higher)]
    if behind:
        return f"{first} has the best mean, but is behind {joined(behind)} on the seeds that they share"
    few = f"it shares fewer than two seeds with {joined(unknown)}" if unknown else ""
    if others:
        return f"{first} is level with {joined(others)}" + (f"; {few}" if few else "")
    return f"{first} has the best mean, but {few}" if few else f"{first} is best"


def decides(values: Mapping[K, Mapping[int, float]]) -> bool:
    """Whether at least two competitors have two seeds in common."""
    runs = list(values.values())
    return any(len(a.keys() & b.keys()) > 1 for i, a in enumerate(runs) for b in runs[:i])


def ahead(difference: Paired | None, higher: bool) -> bool:
    """Whether the first of a pair is better: the interval excludes 0 in its favour."""
    return difference is not None and (difference.low > 0 if higher else difference.high < 0)


def _mean(runs: Mapping[int, float]) -> float:
    values = list(runs.values())
    return statistics.fmean(values) if all(map(math.isfinite, values)) else math.nan
