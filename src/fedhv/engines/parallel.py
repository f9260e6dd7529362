"""The cohort divided among worker processes: one thread each, model and results in shared memory.

Workers are forked once and live as long as the engine; they inherit the problem, so that examples are neither copied
nor sent. For each client only its number and the round's few hyper-parameters travel. Answers are put together in the
cohort's order, so that any number of workers gives the same bits as the sequential engine. Evaluations are divided
among the workers as well, chunk by chunk of the test examples.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
from torch import Tensor

from fedhv.engines.base import Engine
from fedhv.engines.shared import Board, Note, packed, shared_memory, unpacked
from fedhv.problem.problem import Problem
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.exchange import Call, collect
from fedhv.protocol.request import Replies, Reply, Request
from fedhv.protocol.script import Memory
from fedhv.support.cores import usable_cores
from fedhv.support.errors import FedHVError, InputError

DEATHS = 3
"""So many workers may die on one errand before the run stops."""


@dataclass(frozen=True)
class Visit:
    """An errand: the answer of the one client of this cohort, which has this position in the whole one.

    `kind` is the place of the request's class in the engine's list, which workers inherit: a class of a user's own need
    not be importable.
    """

    kind: int
    note: Note
    cohort: Cohort
    position: int
    memory: tuple[dict[str, Any], dict[str, Any]]
    """What the client keeps, of this round and of the run."""

    @property
    def name(self) -> str:
        """What errors call it."""
        return f"Client {self.cohort.clients[0]} in round {self.cohort.round + 1}"


@dataclass(frozen=True)
class Assessment:
    """An errand: the model on a chunk of test examples, where it starts and how many they are at most."""

    start: int
    chunk: int

    @property
    def name(self) -> str:
        """What errors call it."""
        return f"The evaluation of test examples from {self.start}"


Errand = Visit | Assessment


@dataclass
class _Worker:
    process: Any
    connection: Connection


class Parallel(Engine):
    """Answers with several processes; for CPUs, on systems that can fork."""

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
        self._board = Board(places=2 * self.count)
        self._model = shared_memory(self.layout.d)
        """The model that is evaluated."""
        self._kinds: list[type[Request]] = []
        self._workers: list[_Worker] = []

    def ask(self, call: Call) -> Replies:
        """The cohort's answers, as many at a time as there are workers."""
        kind, new = type(call.request), self._board.make_room(call.request, self.layout)
        if kind not in self._kinds:
            self._kinds.append(kind)
            new = True
        if new:
            self._dismiss()  # workers see only what was there when they were forked
        return collect(call, self.layout, self._answers(call), self.client.holding)

    def _answers(self, call: Call) -> Iterator[Reply]:
        """The answers in the cohort's order."""
        note, kind = self._board.post(call.request), self._kinds.index(type(call.request))

        def errand(position: int) -> Errand:
            k = call.cohort.clients[position]
            kept = call.memories[k]
            return Visit(
                kind, note, replace(call.cohort, clients=[k]), position, (packed(kept.round), packed(kept.run))
            )

        for position, (answer, memory) in enumerate(self._sent_out(errand, len(call.cohort))):
            if memory is not None:
                call.memories[call.cohort.clients[position]] = Memory(*map(unpacked, memory))
            yield self._board.taken(call.request.reply, answer, position)

    def _assessments(self, model: Tensor, chunk: int) -> Iterator[Tensor]:
        """Losses and scores of the test examples, their chunks divided among the workers."""
        starts = range(0, len(self._test), chunk)
        self._model.copy_(model)
        parts = self._sent_out(lambda position: Assessment(starts[position], chunk), len(starts))
        return (torch.tensor(part, dtype=torch.float64) for part in parts)

    def _sent_out(self, errand: Callable[[int], Errand], count: int) -> Iterator[Any]:
        """What came of errands 0 … count − 1, in this order; one whose worker died is given to another worker."""
        while len(self._workers) < self.count:
            self._hire()
        following = 0
        again: list[int] = []
        running: dict[int, int] = {}  # worker -> errand
        ready: dict[int, Any] = {}
        deaths: dict[int, int] = {}
        try:
            for due in range(count):
                while due not in ready:
                    for i, worker in enumerate(self._workers):
                        # A place on the board is free again once the answer that lay there has been summed.
                        if i not in running and (again or following < min(count, due + self._board.places)):
                            running[i] = again.pop() if again else following
                            following += running[i] == following
                            # A worker that died since its last errand is found when its answer is awaited.
                            with suppress(OSError):
                                worker.connection.send(errand(running[i]))
                    connections = {id(self._workers[i].connection): i for i in running}
                    for connection in wait([self._workers[i].connection for i in running]):
                        i = connections[id(connection)]
                        position = running.pop(i)
                        try:
                            answer = self._workers[i].connection.recv()
                        except (EOFError, OSError):
                            deaths[position] = deaths.get(position, 0) + 1
                            self._bury(i, errand(position), deaths[position])
                            again.append(position)
                            continue
                        if isinstance(answer, BaseException):
                            raise answer
                        ready[position] = answer
                yield ready.pop(due)
        finally:
            if running:  # nobody will hear these answers, and they must not be taken for the next ones
                self._dismiss()

    # --- workers --------------------------------------------------------------------------------------------

    def _hire(self, place: int | None = None) -> None:
        fork = multiprocessing.get_context("fork")
        here, there = fork.Pipe()
        others = [worker.connection for worker in self._workers] + [here]
        process = fork.Process(target=_work, args=(there, others, self), daemon=True)
        process.start()
        there.close()
        worker = _Worker(process, here)
        if place is None:
            self._workers.append(worker)
        else:
            self._workers[place] = worker

    def _bury(self, i: int, errand: Errand, deaths: int) -> None:
        """A worker died on an errand, for the so-manieth time: hire another one, or give up."""
        if deaths == DEATHS:
            raise FedHVError(
                f"{errand.name} ended its worker process {DEATHS} times (out of memory?). Try --engine sequential."
            )
        self.notes.append(f"A worker process died. {errand.name} is repeated.")
        self._workers[i].connection.close()
        self._workers[i].process.join()
        self._hire(place=i)

    def _dismiss(self) -> None:
        for worker in self._workers:
            worker.connection.close()
        for worker in self._workers:
            worker.process.join(timeout=5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._workers.clear()

    def close(self) -> None:
        """End the workers."""
        self._dismiss()
        super().close()

    @property
    def workers(self) -> list[int]:
        """The process ids of the workers that are there."""
        return [worker.process.pid for worker in self._workers]

    def serve(self, errand: Errand) -> Any:
        """In a worker: what is sent back, which is the small part of what came of it, or what went wrong."""
        try:
            match errand:
                case Visit(kind, note, cohort, position, kept):
                    (client,) = cohort.clients
                    call = Call(self._board.posted(self._kinds[kind], note), cohort)
                    call.memories[client] = memory = Memory(*map(unpacked, kept))
                    before = _held(memory)
                    reply = self._board.put(self.client.answer(call, client), position)
                    changed = _held(memory) != before
                    return reply, (packed(memory.round), packed(memory.run)) if changed else None
                case Assessment(start, chunk):
                    return self._assess(self._model, start, chunk).tolist()
        except FedHVError as error:
            return error
        except Exception as error:  # shown by the engine's process, which has the terminal
            return RuntimeError(f"{errand.name}: {type(error).__name__}: {error}")


def _held(memory: Memory) -> list[tuple[str, int, int]]:
    """Which tensors a client keeps, in which version: a script may replace one, or change it in place."""
    return [(n, id(v), v._version) for kept in (memory.round, memory.run) for n, v in kept.items()]


def can_fork() -> bool:
    """Whether workers can inherit the problem."""
    return "fork" in multiprocessing.get_all_start_methods()


def _work(connection: Connection, others: Sequence[Connection], engine: Parallel) -> None:
    """A worker's life: one errand after the other until the engine hangs up."""
    for other in others:
        other.close()  # an inherited end would keep a pipe open after the engine has closed it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the engine's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    with suppress(EOFError, OSError):  # the engine has hung up: nobody is left to answer
        while True:
            connection.send(engine.serve(connection.recv()))
