"""The evaluation of a model: loss and accuracy per task, and the paper's four aggregates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple

from fedhv.support.jsonfile import Fields

ACCURACY = "accuracy"
"""The main score of a task without metrics."""
LOWER = frozenset({"rmse", "mae", "calibration_error"})
"""Named metrics of which lower values are better, for files of versions that did not write the direction."""


class MainScore(NamedTuple):
    """The number that a task is judged by: its first metric, or its accuracy in percent."""

    name: str
    value: float
    better: Literal["higher", "lower"]

    @property
    def higher(self) -> bool:
        """Whether higher values are better."""
        return self.better == "higher"

    @property
    def digits(self) -> int:
        """How many digits behind the point tables show."""
        return 2 if self.name == ACCURACY or abs(self.value) >= 10 else 3

    @property
    def text(self) -> str:
        """The value as messages show it."""
        return f"{self.value:.1f} %" if self.name == ACCURACY else f"{self.value:.{self.digits}f}"


@dataclass(frozen=True)
class TaskScore:
    """One task on the test examples.

    Attributes:
        name: The task's.
        accuracy: Percent.
        loss: The mean over examples.
        metrics: The task's metrics over the whole test set by name, the main one first.
        lower: The names of those metrics of which lower values are better.
        scored: What the accuracy counts; "accuracy" for right answers.
    """

    name: str
    accuracy: float
    loss: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    lower: tuple[str, ...] = ()
    scored: str = ACCURACY

    @property
    def main(self) -> MainScore:
        """What the task is judged by."""
        for name, value in self.metrics.items():
            return MainScore(name, value, "lower" if name in self.lower else "higher")
        return MainScore(ACCURACY, self.accuracy, "higher")

    def as_dict(self) -> dict[str, Any]:
        """For histories and summaries; without `metrics` where the task has none."""
        made = {"name": self.name, "accuracy": self.accuracy, "loss": self.loss}
        scored = "" if self.scored == ACCURACY else self.scored
        more = {"metrics": dict(self.metrics), "lower": list(self.lower), "scored": scored}
        return made | {key: value for key, value in more.items() if value}

    @classmethod
    def read(cls, found: Fields) -> TaskScore:
        """From an entry of `tasks` in a history or a summary."""
        metrics: dict[str, float] = {}
        if "metrics" in found:
            given = found.object("metrics")
            metrics = {name: given.number(name) for name in given.but(())}
        given_lower = found.but(()).get("lower")
        lower = LOWER if given_lower is None else given_lower if isinstance(given_lower, list) else ()
        directions = tuple(name for name in metrics if name in lower)
        scored = found.text("scored") if "scored" in found else ACCURACY
        return cls(found.text("name"), found.number("accuracy"), found.number("loss"), metrics, directions, scored)


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

    def only(self, judged: Sequence[int] | None) -> Evaluation:
        """Some tasks alone, by number; the hypervolume stays that of all. None for all tasks."""
        if judged is None:
            return self
        tasks = tuple(self.tasks[i] for i in judged)
        return replace(Evaluation.of(tasks), hypervolume=self.hypervolume)

    @property
    def mixed(self) -> str:
        """A sentence for captions if MeanAcc and WorstAcc are over scores that count different things; else empty."""
        return mixed_scores({task.name: task.scored for task in self.tasks})

    @property
    def by_accuracy(self) -> bool:
        """Whether every task is judged by its accuracy, as in the paper."""
        return not any(task.metrics for task in self.tasks)

    @property
    def brief(self) -> str:
        """The main scores in a few words, for progress."""
        mains = [task.main for task in self.tasks]
        if self.by_accuracy:
            return f"mean {self.mean_accuracy:.1f} % worst {self.worst_accuracy:.1f} %"
        if len({main.name for main in mains}) == 1:
            values = [main.value for main in mains]
            mean, worst = sum(values) / len(values), (min if mains[0].higher else max)(values)
            return f"{mains[0].name} mean {_rounded(mean)} worst {_rounded(worst)}"
        shown = [f"{task.name} {task.main.name} {task.main.text}" for task in self.tasks[:SHOWN]]
        return ", ".join(shown) + (" …" if len(mains) > SHOWN else "")

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


@dataclass(frozen=True)
class OverClients:
    """A task's main score at the clients, each on the examples that it holds out.

    Attributes:
        task: The task's name.
        score: The name of the score: a metric, or "accuracy" in percent.
        better: Which direction is better.
        clients: How many clients have it: those with labels of the task that define it.
        mean: The mean over these clients, which count alike.
        worst_decile: The mean over the worst tenth of them, at least one.
        deviation: The sample standard deviation over them; None for one client.
    """

    task: str
    score: str
    better: Literal["higher", "lower"]
    clients: int
    mean: float
    worst_decile: float
    deviation: float | None = None

    @classmethod
    def of(cls, task: str, score: str, lower: bool, values: Sequence[float]) -> OverClients:
        """From one number of every client."""
        n = len(values)
        mean = math.fsum(values) / n
        worst = sorted(values, reverse=lower)[: math.ceil(n / 10)]
        spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1)) if n > 1 else None
        return cls(task, score, "lower" if lower else "higher", n, mean, math.fsum(worst) / len(worst), spread)

    @classmethod
    def read(cls, found: Fields) -> OverClients:
        """From an entry of `over_clients` in a history or a summary."""
        return cls(
            task=found.text("task"),
            score=found.text("score"),
            better="lower" if found.text("better") == "lower" else "higher",
            clients=found.whole("clients", least=1),
            mean=found.number("mean"),
            worst_decile=found.number("worst_decile"),
            deviation=found.number("deviation") if "deviation" in found else None,
        )

    def as_dict(self) -> dict[str, Any]:
        """For histories and summaries."""
        return asdict(self)


def mixed_scores(scored: Mapping[str, str]) -> str:
    """A sentence for captions if the scores of tasks count different things; else empty."""
    if len(set(scored.values())) < 2:
        return ""
    each = ", ".join(f"{name} {what}" for name, what in scored.items())
    return f"MeanAcc and WorstAcc are over scores that cannot be compared: {each}."


SHOWN = 3
"""The largest number of tasks with different metrics that progress names."""


def _rounded(value: float) -> str:
    return f"{value:.{2 if abs(value) >= 10 else 3}f}"


AGGREGATES = tuple(each.name for each in fields(Evaluation) if each.name != "tasks")
"""The names of the paper's four."""
