"""Evaluation at the clients: every client's losses and scores on the examples that it holds out, and what all give."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedhv.problem.parameters import Layout
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.evaluation import Evaluation, TaskScore
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


@dataclass(frozen=True)
class Validation:
    """A model on the examples that clients hold out.

    Attributes:
        tasks: The names of the tasks.
        replies: What every client found.
        traffic: What it cost.
        refused: Clients whose answers are missing, with reasons.
    """

    tasks: tuple[str, ...]
    replies: EvaluateReplies
    traffic: Traffic
    refused: tuple[Refusal, ...] = ()

    def overall(self, reference: float) -> Evaluation | None:
        """All tasks over all held-out labels; None where a task has none among the clients that answered."""
        losses, scores = (each.tolist() for each in self.replies.overall())
        if not all(map(math.isfinite, losses)):
            return None
        found = zip(self.tasks, scores, losses, strict=True)
        return Evaluation.of([TaskScore(name, 100 * score, loss) for name, score, loss in found], reference)

    def as_dict(self, reference: float) -> dict[str, Any]:
        """As the history has it: overall metrics, and for every client its labels, losses and accuracies by task."""
        overall = self.overall(reference)
        found = self.replies
        made: dict[str, Any] = {} if overall is None else overall.as_dict()
        made["clients"] = {
            "client": list(found.cohort.clients),
            "labels": [[int(n) for n in row] for row in found.labels.tolist()],
            "loss": [_short(row) for row in found.losses.tolist()],
            "accuracy": [_short(row) for row in (100 * found.scores).tolist()],
        }
        made |= bytes_sent(self.traffic)
        if self.refused:
            made["refused"] = [refusal.as_dict() for refusal in self.refused]
        return made


def validate(
    layout: Layout,
    tasks: Sequence[str],
    population: int | Callable[[], Sequence[int]],
    screening: Screening,
    model: Tensor,
    place: tuple[int, int, LocalTraining],
) -> Generator[Any, Any, Validation]:
    """Ask every client that is there to evaluate a model; `place` is the seed, the round and how clients train.

    Simulated faults do not apply: what is measured is the model.
    """
    seed, t, local = place
    clients = list(range(population)) if isinstance(population, int) else list(population())
    cohort = Cohort(clients, t, seed, local, len(clients))
    request = Evaluate(model)
    replies: EvaluateReplies = yield Call(request, cohort, Intake(screening))
    asked = len(clients) - sum(not refusal.asked for refusal in replies.refused)
    sent = len(replies.cohort) + sum(refusal.sent for refusal in replies.refused)
    return Validation(tuple(tasks), replies, traffic(request, layout, asked, sent), replies.refused)


def _short(row: Sequence[float]) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in row]
