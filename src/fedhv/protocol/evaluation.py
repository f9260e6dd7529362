"""The evaluation of a model: loss and accuracy per task, and the paper's four aggregates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from fedhv.support.jsonfile import Fields


@dataclass(frozen=True)
class TaskScore:
    """One task on the test examples.

    Attributes:
        name: The task's.
        accuracy: Percent.
        loss: The mean over examples.
        metrics: The task's metrics over the whole test set by name, the main one first.
    """

    name: str
    accuracy: float
    loss: float
    metrics: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For histories and summaries; without `metrics` where the task has none."""
        return {key: value for key, value in asdict(self).items() if key != "metrics" or value}

    @classmethod
    def read(cls, found: Fields) -> TaskScore:
        """From an entry of `tasks` in a history or a summary."""
        metrics: dict[str, float] = {}
        if "metrics" in found:
            given = found.object("metrics")
            metrics = {name: given.number(name) for name in given.but(())}
        return cls(found.text("name"), found.number("accuracy"), found.number("loss"), metrics)


@dataclass(frozen=True)
class Evaluation:
    """All tasks on the test examples.

    Attributes:
        mean_accuracy: MeanAcc, percent.
        worst_accuracy: WorstAcc, percent.
        mean_loss: MeanLoss.
        hypervolume: HV = Π (r_eval − ℓᵢ); zero as soon as one task is worse than the evaluation reference.
        tasks: Every task by itself.
    """

    mean_accuracy: float
    worst_accuracy: float
    mean_loss: float
    hypervolume: float
    tasks: tuple[TaskScore, ...]

    @classmethod
    def of(cls, tasks: Sequence[TaskScore], reference: float = 3.0) -> Evaluation:
        """The aggregates of some scores against the common evaluation reference r_eval."""
        return cls(
            mean_accuracy=sum(task.accuracy for task in tasks) / len(tasks),
            worst_accuracy=min(task.accuracy for task in tasks),
            mean_loss=sum(task.loss for task in tasks) / len(tasks),
            hypervolume=math.prod(max(reference - task.loss, 0.0) for task in tasks),
            tasks=tuple(tasks),
        )

    @classmethod
    def read(cls, found: Fields) -> Evaluation:
        """From a round of a history, or from a summary."""
        tasks = tuple(TaskScore.read(each) for each in found.objects("tasks"))
        if not tasks:
            raise ValueError("`tasks` should name at least one")
        return cls(**{name: found.number(name) for name in AGGREGATES}, tasks=tasks)

    def scalars(self) -> Iterator[tuple[str, float]]:
        """(name, value) of every number, such as `mean_loss` and `tasks/digit/accuracy`."""
        yield from ((name, getattr(self, name)) for name in AGGREGATES)
        for task in self.tasks:
            yield f"tasks/{task.name}/accuracy", task.accuracy
            yield f"tasks/{task.name}/loss", task.loss
            yield from ((f"tasks/{task.name}/{name}", value) for name, value in task.metrics.items())

    def as_dict(self) -> dict[str, Any]:
        """For histories and summaries."""
        return {name: getattr(self, name) for name in AGGREGATES} | {"tasks": [task.as_dict() for task in self.tasks]}


AGGREGATES = tuple(each.name for each in fields(Evaluation) if each.name != "tasks")
"""The names of the paper's four."""
