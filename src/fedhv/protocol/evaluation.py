"""How good a model is: per-task loss and accuracy, and the paper's four aggregates of them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class TaskScore:
    """One task on the test examples; accuracy in percent."""

    name: str
    accuracy: float
    loss: float


@dataclass(frozen=True)
class Evaluation:
    """All tasks on the test examples, against the common evaluation reference r_eval."""

    tasks: tuple[TaskScore, ...]
    reference: float = 3.0

    @property
    def mean_accuracy(self) -> float:
        """MeanAcc, percent."""
        return sum(task.accuracy for task in self.tasks) / len(self.tasks)

    @property
    def worst_accuracy(self) -> float:
        """WorstAcc, percent."""
        return min(task.accuracy for task in self.tasks)

    @property
    def mean_loss(self) -> float:
        """MeanLoss."""
        return sum(task.loss for task in self.tasks) / len(self.tasks)

    @property
    def hypervolume(self) -> float:
        """HV = Π (r_eval − ℓᵢ); zero as soon as one task is worse than the reference."""
        return math.prod(max(self.reference - task.loss, 0.0) for task in self.tasks)

    def as_dict(self) -> dict[str, Any]:
        """For histories and summaries."""
        names = ("mean_accuracy", "worst_accuracy", "mean_loss", "hypervolume")
        return {name: getattr(self, name) for name in names} | {"tasks": [asdict(task) for task in self.tasks]}
