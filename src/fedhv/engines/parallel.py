"""The clients of a cohort in worker processes: one thread each, model and results in shared memory.

Workers are forked once and run until the engine is closed. They inherit the problem, so examples are neither copied nor
sent. A task for a worker holds only the client's number and the round's hyper-parameters. Replies are combined in the
order of the cohort, so any number of workers gives the same bits as the sequential engine. Evaluation is divided among
the workers in chunks of test examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedhv.engines.base import Engine
from fedhv.engines.shared import Header, SharedBuffers, packed, shared_memory, unpacked
from fedhv.problem.problem import Problem
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.exchange import Call, collect
from fedhv.protocol.request import Replies, Reply, Request
from fedhv.protocol.script import Memory
from fedhv.support.cores import usable_cores
from fedhv.support.errors import FedHVError, InputError
from fedhv.support.pool import Pool, can_fork


@dataclass(frozen=True)
class ClientTask:
    """A request to one client. `cohort` holds this client only; `position` is its place in the whole cohort.

    `kind` indexes the engine's list of request classes. Workers inherit this list, so a user's class need not be
    importable.
    """

    kind: int
    header: Header
    cohort: Cohort
    position: int
    memory: tuple[dict[str, Any], dict[str, Any]]
    """What the client keeps for the round and for the run."""

    @property
    def name(self) -> str:
        """Its name in error messages."""
        return f"Client {self.cohort.clients[0]} in round {self.cohort.round + 1}"


@dataclass(frozen=True)
class EvaluationTask:
    """The evaluation of the model on `chunk` test examples from `start` on; the last chunk may be smaller."""

    start: int
    chunk: int

    @property
    def name(self) -> str:
        """Its name in error messages."""
        return f"The evaluation of test examples from {self.start}"


WorkerTask = ClientTask | EvaluationTask


class Parallel(Engine):
    """Computes clients in several processes; for CPUs, on systems that can fork."""

    precisions = ("float32",)

    def __init__(
        self,
        problem: Problem,
        device: torch.device | str = "cpu",
        precision: str = "float32",
        workers: int | None = None,
    ) -> None:
        super().__init__(problem, device, precision)
        if self.device.type != "cpu":
            raise InputError("The engine 'parallel' computes on the CPU. Use --engine stacked on a GPU.")
        if not can_fork():
            raise InputError("The engine 'parallel' needs a system that can fork. Use --engine sequential.")
        self.count = workers or usable_cores()
        self._buffers = SharedBuffers(places=2 * self.count)
        self._model = shared_memory(self.layout.d)
        """The model that is evaluated."""
        self._kinds: list[type[Request]] = []
        self._pool = Pool(self._start, self.count, fork=True, warn=self.notes.append, remedy="Try --engine sequential.")

    def _start(self) -> Callable[[WorkerTask], Any]:
        """Called in a worker before its first task."""
        torch.set_num_threads(1)
        return self.compute

    def ask(self, call: Call) -> Replies:
        """The replies of the cohort; each worker computes one client at a time."""
        kind, new = type(call.request), self._buffers.grow(call.request, self.layout)
        if kind not in self._kinds:
            self._kinds.append(kind)
            new = True
        if new:
            self._pool.close()  # a worker sees only what existed when it was forked; new ones start when needed
        return collect(call, self.layout, self._answers(call), self.client.holding)

    def _answers(self, call: Call) -> Iterator[Reply]:
        """The replies in the order of the cohort."""
        header, kind = self._buffers.write_request(call.request), self._kinds.index(type(call.request))

        def task(position: int) -> WorkerTask:
            k = call.cohort.clients[position]
            kept = (packed(call.memories[k].round), packed(call.memories[k].run))
            return ClientTask(kind, header, replace(call.cohort, clients=[k]), position, kept)

        for position, (answer, memory) in enumerate(self._computed(task, len(call.cohort))):
            if memory is not None:
                call.memories[call.cohort.clients[position]] = Memory(*map(unpacked, memory))
            yield self._buffers.read_reply(call.request.reply, answer, position)

    def _assessments(self, model: Tensor, chunk: int) -> Iterator[Tensor]:
        """Losses and scores of the test examples, in chunks that are divided among the workers."""
        starts = range(0, len(self._tested), chunk)
        self._model.copy_(model)
        parts = self._computed(lambda position: EvaluationTask(starts[position], chunk), len(starts))
        return (torch.tensor(part, dtype=torch.float64) for part in parts)

    def _computed(self, task: Callable[[int], WorkerTask], count: int) -> Iterator[Any]:
        # A place in the buffers is free once its reply has been summed.
        return self._pool.results(task, count, ahead=self._buffers.places, name=lambda number: task(number).name)

    def close(self) -> None:
        """Stop the workers."""
        self._pool.close()
        super().close()

    @property
    def workers(self) -> list[int]:
        """The process ids of the workers."""
        return self._pool.pids

    def compute(self, task: WorkerTask) -> Any:
        """Called in a worker: returns the small part of a task's result; the large part is in the shared buffers."""
        try:
            match task:
                case ClientTask(kind, header, cohort, position, kept):
                    (client,) = cohort.clients
                    call = Call(self._buffers.read_request(self._kinds[kind], header), cohort)
                    call.memories[client] = memory = Memory(*map(unpacked, kept))
                    before = memory.versions()
                    reply = self._buffers.write_reply(self.client.answer(call, client), position)
                    changed = memory.versions() != before
                    return reply, (packed(memory.round), packed(memory.run)) if changed else None
                case EvaluationTask(start, chunk):
                    return self._assess(self._model, start, chunk).tolist()
        except FedHVError:
            raise
        except Exception as error:
            raise RuntimeError(f"{task.name}: {type(error).__name__}: {error}") from error
