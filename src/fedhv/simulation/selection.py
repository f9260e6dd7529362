"""The choice of a model by evaluations on held-out examples: the best one so far, and when to stop.

It is a function of the history alone, so a resumed run chooses what an uninterrupted one chooses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedhv.protocol.evaluation import ACCURACY, Evaluation
from fedhv.simulation.record import Round
from fedhv.support.errors import InputError


def selection_score(evaluation: Evaluation, first: Evaluation) -> float:
    """One number for all tasks, higher is better: the mean of their main scores, brought to a common scale.

    A score of which higher values are better counts as it is (accuracies as shares), since such metrics are at most 1.
    One of which lower values are better has the task's unit, so it is divided by its value at the first evaluation and
    counts negatively.
    """
    return math.fsum(map(_scaled, evaluation.tasks, first.tasks)) / len(evaluation.tasks)


def selected_by(evaluation: Evaluation) -> str:
    """What `selection_score` averages, in words: MeanAcc, the mean of a common metric, or of several main metrics."""
    names = list(dict.fromkeys(task.main.name for task in evaluation.tasks))
    if names == [ACCURACY]:
        return "MeanAcc"
    return f"mean {names[0]}" if len(names) == 1 else f"mean of the tasks' main metrics ({', '.join(names)})"


def _scaled(task: Any, first: Any) -> float:
    main = task.main
    if main.higher:
        return float(main.value / 100 if main.name == ACCURACY else main.value)
    return -float(main.value / (abs(first.main.value) or 1.0))


@dataclass(frozen=True)
class Selection:
    """The evaluations so far: which was best, and how many came after it.

    Attributes:
        patience: The run ends after this many evaluations without a better one; 0: never.
        judged: The tasks, by number, that count; None for all.
        first: The first evaluation, which fixes the scale.
        round: The round of the best; the earliest of equal ones.
        score: Its score.
        waited: The evaluations after it.
    """

    patience: int = 0
    judged: tuple[int, ...] | None = None
    first: Evaluation | None = None
    round: int | None = None
    score: float = -math.inf
    waited: int = 0

    def after(self, record: Round) -> Selection:
        """The selection after one more round."""
        if record.evaluation is None:
            return self
        found = record.evaluation.only(self.judged)
        first = self.first or found
        score = selection_score(found, first)
        if score > self.score:
            return replace(self, first=first, round=record.number, score=score, waited=0)
        return replace(self, first=first, waited=self.waited + 1)

    @property
    def exhausted(self) -> bool:
        """Whether the run should end."""
        return 0 < self.patience <= self.waited


def check_judged(evaluation: Evaluation, metrics: Sequence[Any], judged: Sequence[int] | None) -> None:
    """Reject held-out examples that do not define a task's main metric at any client."""
    for i, (task, metric) in enumerate(zip(evaluation.tasks, metrics, strict=False)):  # no metric is asked for
        if metric is not None and not task.metrics and (judged is None or i in judged):
            raise InputError(
                f"Task '{task.name}': the held-out examples of at least one client should define '{metric.name}'. "
                "Found none that do; raise `federation.validation`, or give the task another main metric."
            )
