"""Evaluation at the clients: every client's losses and scores on the examples that it holds out, and what all give."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from fedhv.problem.parameters import Layout
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.evaluation import ACCURACY, Evaluation, OverClients, TaskScore
from fedhv.protocol.exchange import Call
from fedhv.protocol.intake import Intake
from fedhv.protocol.local import LocalTraining
from fedhv.protocol.request import Refusal
from fedhv.protocol.requests.evaluate import Evaluate, EvaluateReplies
from fedhv.protocol.screening import Screening
from fedhv.protocol.traffic import Traffic, traffic
from fedhv.simulation.record import bytes_sent

DIGITS = 6
"""Of the numbers of single clients in a history."""


class MetricName(NamedTuple):
    """A task's main metric: what it is called, and whether lower values are better."""

    name: str
    lower: bool


@dataclass(frozen=True)
class Validation:
    """A model on the examples that clients hold out.

    Attributes:
        tasks: The names of the tasks.
        replies: What every client found.
        metrics: For every task the name of its main metric and whether lower values are better; None without one.
        traffic: What it cost.
        refused: Clients whose answers are missing, with reasons.
    """

    tasks: tuple[str, ...]
    replies: EvaluateReplies
    traffic: Traffic
    refused: tuple[Refusal, ...] = ()
    metrics: tuple[MetricName | None, ...] = ()

    def overall(self, reference: float, judged: Sequence[int] | None = None) -> Evaluation | None:
        """All tasks over all held-out labels; None where a task has none among the clients that answered.

        With `judged` only these tasks, by number, have to have labels; the others may be NaN.
        """
        losses, scores = (each.tolist() for each in self.replies.overall())
        if not all(math.isfinite(loss) for i, loss in enumerate(losses) if judged is None or i in judged):
            return None
        found = self.replies.overall_metrics().tolist()
        made = []
        for i, (name, score, loss) in enumerate(zip(self.tasks, scores, losses, strict=True)):
            about = self._metric(i)
            metrics = {about.name: found[i]} if about is not None and math.isfinite(found[i]) else {}
            lower = tuple(metrics) if about is not None and about.lower else ()
            made.append(TaskScore(name, 100 * score, loss, metrics, lower))
        return Evaluation.of(made, reference)

    def over_clients(self) -> tuple[OverClients, ...]:
        """Every task's main score over clients; tasks that no client has are left out."""
        found = []
        for i, task in enumerate(self.tasks):
            about = self._metric(i)
            if about is not None and bool(self.replies.measured[:, i].any()):
                there, values = self.replies.measured[:, i] > 0, self.replies.metrics[:, i]
                name, lower = about
            else:
                there, values = self.replies.labels[:, i] > 0, 100 * self.replies.scores[:, i]
                name, lower = ACCURACY, False
            if bool(there.any()):
                found.append(OverClients.of(task, name, lower, values[there].tolist()))
        return tuple(found)

    def _metric(self, i: int) -> MetricName | None:
        return self.metrics[i] if self.metrics else None

    def as_dict(self, reference: float, judged: Sequence[int] | None = None) -> dict[str, Any]:
        """As the history has it: overall scores, their spread over clients, and every client's numbers by task."""
        overall = self.overall(reference, judged)
        found = self.replies
        made: dict[str, Any] = {} if overall is None else overall.as_dict()
        made["clients"] = {
            "client": list(found.cohort.clients),
            "labels": [[int(n) for n in row] for row in found.labels.tolist()],
            "loss": [_short(row) for row in found.losses.tolist()],
            "accuracy": [_short(row) for row in (100 * found.scores).tolist()],
        }
        if bool(found.measured.any()):
            made["clients"]["metric"] = [
                [value if n else None for value, n in zip(_short(row), counts, strict=True)]
                for row, counts in zip(found.metrics.tolist(), found.measured.tolist(), strict=True)
            ]
        made["over_clients"] = [each.as_dict() for each in self.over_clients()]
        made |= bytes_sent(self.traffic)
        if self.refused:
            made["refused"] = [refusal.as_dict() for refusal in self.refused]
        return made


def validation_round(
    layout: Layout,
    tasks: Sequence[str],
    population: int | Callable[[], Sequence[int]],
    screening: Screening,
    model: Tensor,
    place: tuple[int, int, LocalTraining],
    metrics: Sequence[MetricName | None] = (),
) -> Generator[Any, Any, Validation]:
    """The evaluation by clients after a round: every client that is there evaluates the model.

    `place` is the seed, the round and how clients train. `metrics` are the tasks' main metrics; without any,
    clients answer losses and scores alone. Simulated faults do not apply: what is measured is the model.
    """
    seed, t, local = place
    clients = list(range(population)) if isinstance(population, int) else list(population())
    cohort = Cohort(clients, t, seed, local, len(clients))
    request = Evaluate(model, judged=any(metrics))
    replies: EvaluateReplies = yield Call(request, cohort, Intake(screening))
    asked = len(clients) - sum(not refusal.asked for refusal in replies.refused)
    sent = len(replies.cohort) + sum(refusal.sent for refusal in replies.refused)
    return Validation(tuple(tasks), replies, traffic(request, layout, asked, sent), replies.refused, tuple(metrics))


def _short(row: Sequence[float]) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in row]
