"""The engine interface: it computes the replies to a method's requests and evaluates models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from fedhv.engines.heap import give_memory_back, keep_freed_memory
from fedhv.engines.portions import Portion, gpu_memory
from fedhv.engines.repeatable import Repeatable
from fedhv.problem.devices import arithmetic_device
from fedhv.problem.labels import holding, labels_at
from fedhv.problem.metrics import lower_is_better, measure
from fedhv.problem.problem import Examples, Problem
from fedhv.problem.tasks import check_score
from fedhv.protocol.client import CHUNK, Client
from fedhv.protocol.evaluation import Evaluation, TaskScore
from fedhv.protocol.exchange import Call
from fedhv.protocol.request import Replies
from fedhv.support.errors import InputError
from fedhv.support.transfers import HostCopy


class Engine(ABC):
    """Computes the replies of cohorts. Use it as a context manager, which releases workers and memory."""

    precisions: ClassVar[tuple[str, ...]] = ("float32", "tf32")
    """The precisions that an engine supports: float32; tf32, which rounds factors of matrix products on a GPU; bf16."""
    saves_every_round: ClassVar[bool] = False
    """Whether every round is saved in a checkpoint, because rounds with real clients are expensive."""

    def __init__(self, problem: Problem, device: torch.device | str = "cpu", precision: str = "float32") -> None:
        if precision not in self.precisions:
            name = type(self).__name__.lower()
            raise InputError(f"The engine '{name}' computes in {' or '.join(self.precisions)}. Found '{precision}'.")
        self.problem = problem
        self.device = arithmetic_device(device)
        self.precision = precision
        if self.device.type == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = precision != "float32"
            torch.backends.cudnn.allow_tf32 = precision != "float32"
            self._repeatable: Repeatable | None = Repeatable()
        else:
            self._repeatable = None
            keep_freed_memory()
        too_many = "The examples do not fit into the GPU's memory. Use --device cpu, or a GPU with more memory."
        with gpu_memory(too_many, self.device):
            self.client = Client(problem, device)
            self._test = None if problem.test is None else problem.test.to(self.device)
        self.layout = self.client.layout
        self.rounds = 0
        """T of the runs, where it is known: an engine may prepare for long runs in another way than for short ones."""
        self.stopping: Callable[[], bool] = lambda: False
        """Whether a signal waits for the round to end; long preparations then end with KeyboardInterrupt."""
        self.notes: list[str] = list(self.client.network.notes)
        """Messages for the user about the computation of a run; the caller shows and removes them."""
        self.chunk = Portion(
            CHUNK if self.device.type == "cpu" else 16 * CHUNK,
            "GPU memory is short: reports and evaluations use {size} examples at a time.",
            "One example does not fit into the GPU's memory. Use --device cpu.",
            self.notes,
            self.device,
        )
        """The number of examples in one forward pass of reports and evaluations."""

    @property
    def population(self) -> int | Callable[[], Sequence[int]]:
        """The number of clients, or a function that returns the available ones if clients come and go."""
        return len(self.problem.clients)

    def sizes(self, clients: Sequence[int]) -> np.ndarray:
        """How many examples each of these clients holds."""
        return np.asarray(self.problem.clients.sizes[np.asarray(clients)])

    def labels(self) -> tuple[int, ...] | None:
        """How many of the clients' examples are labelled, for every task; None where all are."""
        problem = self.problem
        return None if problem.train.labelled is None else labels_at(problem, problem.clients.indices)

    def client_labels(self) -> list[tuple[int, ...]]:
        """For every client its number of examples, then of labels for every task; empty where all are labelled."""
        problem = self.problem
        if problem.train.labelled is None:
            return []
        found = [holding(problem, k) for k in range(len(problem.clients))]
        return [(each.examples, *each.of(len(problem.tasks))) for each in found]

    ahead: bool = False
    """Whether a run begins its next round before it reads the numbers of the last one; a GPU then always has work."""

    @property
    def interruptible(self) -> bool:
        """Whether Ctrl-C may interrupt a computation. A GPU's libraries may not recover from that."""
        return self.device.type != "cuda"

    def watching(self) -> AbstractContextManager[object]:
        """A context for the first step on a GPU, which finds out what repeatable results need there."""
        return nullcontext() if self._repeatable is None else self._repeatable.watching()

    @abstractmethod
    def ask(self, call: Call) -> Replies:
        """The combined replies of the cohort."""

    def ask_together(self, calls: Sequence[Call]) -> list[Replies]:
        """The combined replies to the requests of several runs. Some engines compute them together."""
        return [self.ask(call) for call in calls]

    def evaluate(self, model: Tensor, reference: float = 3.0) -> Evaluation:
        """The model on the test examples, in evaluation mode."""
        return self.begin_evaluation(model, reference)()

    def begin_evaluation(self, model: Tensor, reference: float = 3.0) -> Callable[[], Evaluation]:
        """The same as a function that returns it, so that a GPU can have other work before the numbers are read."""
        tasks, n = self.problem.tasks, len(self._tested)

        def summed(chunk: int) -> Tensor:
            total = torch.zeros(3, len(tasks), dtype=torch.float64, device=self.device)
            for part in self._assessments(model, chunk):  # summed in the order of the examples, on every engine
                total += part
            return total

        sums = HostCopy(self.chunk(n, summed, self.release))

        def read() -> Evaluation:
            metrics = self._metrics(model)
            scores = [
                TaskScore(
                    name=task.name,
                    accuracy=100 * score / count,
                    loss=loss / count,
                    metrics=found,
                    lower=lower_is_better(task) if found else (),
                    scored=task.scored,
                )
                for task, loss, score, count, found in zip(tasks, *sums.read().tolist(), metrics, strict=True)
            ]
            for task, found in zip(tasks, scores, strict=True):
                check_score(task, found.accuracy / 100, found.accuracy / 100)
            return Evaluation.of(scores, reference)

        return read

    def check_metrics(self, model: Tensor) -> None:
        """Reject test examples on which a task's metric cannot be computed; the numbers are not used."""
        self._metrics(model)

    @torch.no_grad()
    def _metrics(self, model: Tensor) -> list[dict[str, float]]:
        """Every task's metrics; a pass of its own, since sums over examples do not give them."""
        tasks, test = self.problem.tasks, self._tested
        if not any(task.metrics for task in tasks):
            return [{} for _ in tasks]

        def collected(chunk: int) -> list[Tensor]:
            parts = []
            for start in range(0, len(test), chunk):
                batch = self.client.ready(test[start : start + chunk])
                outputs = self.client.network(model, batch.inputs, training=False)
                parts.append([output.float().cpu() for output in outputs])
            return [torch.cat(each) for each in zip(*parts, strict=True)]

        outputs = self.chunk(len(test), collected, self.release)
        masks = test.labelled or (None,) * len(tasks)
        return [measure(*each) for each in zip(tasks, outputs, test.targets, masks, strict=True)]

    def _assessments(self, model: Tensor, chunk: int) -> Iterator[Tensor]:
        """Losses and scores of the chunks of test examples."""
        return (self._assess(model, start, chunk) for start in range(0, len(self._tested), chunk))

    @torch.no_grad()
    def _assess(self, model: Tensor, start: int, chunk: int) -> Tensor:
        """Every task's summed loss, summed score and number of labels on one chunk of test examples, 3 × m."""
        return self.client.assessed(model, self.client.ready(self._tested[start : start + chunk]))

    @property
    def _tested(self) -> Examples:
        if self._test is None:
            raise InputError(f"Problem '{self.problem.name}' has no test examples: its clients evaluate models.")
        return self._test

    def release(self) -> None:
        """Free the GPU's memory that is kept for later."""
        torch.cuda.empty_cache()

    def warmed_up(self) -> float:
        """The seconds since the last call that went into compilation, which are counted apart from rounds."""
        return 0.0

    def measured(self, number: int) -> dict[str, Any]:
        """Measurements of a round, counted from 1, for the history. Called after every round."""
        return {}

    def close(self) -> None:
        """Release workers and memory."""
        if self.device.type == "cpu":
            give_memory_back()
        if self._repeatable is not None:
            self._repeatable.restore()
            self._repeatable = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
