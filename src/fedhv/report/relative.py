"""Methods compared where scores have different units: relative to single-task training, and by rank.

With the main score vᵢ of task i and bᵢ of the single-task baseline with the same seed, the change is
± (vᵢ − bᵢ) / |bᵢ| in percent, positive where the method is better. Δm is its mean over tasks, and the worst task is its
minimum.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TypeVar

from fedhv.protocol.evaluation import Evaluation, MainScore
from fedhv.runs.defaults import BASELINES

K = TypeVar("K", bound=Hashable)

SINGLE_TASK = BASELINES[0]


def changes(evaluation: Evaluation, baseline: Evaluation) -> list[float] | None:
    """The relative change of every task in percent, positive where it is better; None if a task is judged otherwise.

    A change relative to 0 is not defined: it is NaN.
    """
    pairs = list(zip(evaluation.tasks, baseline.tasks, strict=False))
    if len(evaluation.tasks) != len(baseline.tasks) or any(a.main.name != b.main.name for a, b in pairs):
        return None
    found = []
    for mine, alone in pairs:
        sign = 1 if mine.main.higher else -1
        base = alone.main.value
        found.append(sign * 100 * (mine.main.value - base) / abs(base) if base else math.nan)
    return found


def delta_m(evaluation: Evaluation, baseline: Evaluation) -> float | None:
    """Δm: the mean relative change to single-task training, percent."""
    found = changes(evaluation, baseline)
    return None if found is None else math.fsum(found) / len(found)


def worst_change(evaluation: Evaluation, baseline: Evaluation) -> float | None:
    """The relative change of the task that lost most against its own baseline, percent."""
    found = changes(evaluation, baseline)
    return None if found is None else math.nan if any(map(math.isnan, found)) else min(found)


def mean_ranks(evaluations: Mapping[K, Evaluation]) -> dict[K, float]:
    """For every method the mean over tasks of its rank, 1 for the best; equal scores share their mean rank.

    A score that is not defined is the worst.
    """
    total = dict.fromkeys(evaluations, 0.0)
    m = min((len(each.tasks) for each in evaluations.values()), default=0)
    for i in range(m):
        badness = {key: _badness(each.tasks[i].main) for key, each in evaluations.items()}
        for key, mine in badness.items():
            better = sum(other < mine for other in badness.values())
            equal = sum(other == mine for other in badness.values())
            total[key] += better + (equal + 1) / 2
    return {key: value / m for key, value in total.items()} if m else {}


def _badness(main: MainScore) -> float:
    """A score such that smaller is better."""
    value = -main.value if main.higher else main.value
    return math.inf if math.isnan(value) else value
