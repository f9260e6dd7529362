"""An engine is where clients live: it answers a method's requests and evaluates models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from fedhv.client import CHUNK, Client
from fedhv.cohort import Cohort
from fedhv.messages import Replies, Request
from fedhv.metrics import Evaluation, TaskScore
from fedhv.problem import Problem


class Engine(ABC):
    """Answers requests for a cohort. Use as a context manager: workers and memory are released at its end."""

    def __init__(self, problem: Problem, device: torch.device | str = "cpu") -> None:
        self.problem = problem
        self.device = torch.device(device)
        self.client = Client(problem, device)
        self.layout = self.client.layout
        self._test = problem.test.to(self.device)

    @abstractmethod
    def ask(self, request: Request, cohort: Cohort) -> Replies:
        """The cohort's answers."""

    @torch.no_grad()
    def evaluate(self, model: Tensor, reference: float = 3.0) -> Evaluation:
        """The model on the test examples, in evaluation mode."""
        tasks = self.problem.tasks
        loss, score = torch.zeros(2, len(tasks), dtype=torch.float64, device=self.device)
        for start in range(0, len(self._test), CHUNK):
            batch = self.client.ready(self._test[start : start + CHUNK])
            outputs = self.client.network(model, batch.inputs, training=False)
            for i, (task, output, target) in enumerate(zip(tasks, outputs, batch.targets, strict=True)):
                loss[i] += task.loss(output, target).double().sum()
                score[i] += task.score(output, target).double().sum()
        n = len(self._test)
        scores = [
            TaskScore(task.name, 100 * a / n, f / n)
            for task, a, f in zip(tasks, score.tolist(), loss.tolist(), strict=True)
        ]
        return Evaluation(tuple(scores), reference)

    def close(self) -> None:  # noqa: B027 — most engines have nothing to release
        """Release workers and memory."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
