"""An engine is where clients live: it answers a method's requests and evaluates models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import ClassVar, Self

import torch
from torch import Tensor

from fedhv.client import CHUNK, Client
from fedhv.cohort import Cohort
from fedhv.errors import InputError
from fedhv.messages import Replies, Request
from fedhv.metrics import Evaluation, TaskScore
from fedhv.problem import Problem


class Engine(ABC):
    """Answers requests for a cohort. Use as a context manager: workers and memory are released at its end."""

    precisions: ClassVar[tuple[str, ...]] = ("float32", "tf32")
    """What an engine can compute in: float32; tf32, which rounds the factors of matrix products on a GPU; bf16."""

    def __init__(self, problem: Problem, device: torch.device | str = "cpu", precision: str = "float32") -> None:
        if precision not in self.precisions:
            name = type(self).__name__.lower()
            raise InputError(f"The engine '{name}' computes in {' or '.join(self.precisions)}. Found '{precision}'.")
        self.problem = problem
        self.device = torch.device(device)
        self.precision = precision
        if self.device.type == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = precision != "float32"
            torch.backends.cudnn.allow_tf32 = precision != "float32"
        self.client = Client(problem, device)
        self.layout = self.client.layout
        self.chunk = CHUNK if self.device.type == "cpu" else 8 * CHUNK
        self.notes: list[str] = []
        """What the user should know about how a run is computed; emptied by whoever shows it."""
        self._test = problem.test.to(self.device)

    @abstractmethod
    def ask(self, request: Request, cohort: Cohort) -> Replies:
        """The cohort's answers."""

    def ask_together(self, calls: Sequence[tuple[Request, Cohort]]) -> list[Replies]:
        """The answers to several runs' requests; an engine that can computes them in one go."""
        return [self.ask(request, cohort) for request, cohort in calls]

    @torch.no_grad()
    def evaluate(self, model: Tensor, reference: float = 3.0) -> Evaluation:
        """The model on the test examples, in evaluation mode."""
        tasks = self.problem.tasks
        loss, score = torch.zeros(2, len(tasks), dtype=torch.float64, device=self.device)
        for start in range(0, len(self._test), self.chunk):
            batch = self.client.ready(self._test[start : start + self.chunk])
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
