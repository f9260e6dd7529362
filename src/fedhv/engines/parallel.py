"""The cohort divided among worker processes: one thread each, model and results in shared memory.

Workers are forked once and live as long as the engine; they inherit the problem, so that examples are neither copied
nor sent. For each client only its number and the round's few hyper-parameters travel. Answers are put together in the
cohort's order, so that any number of workers gives the same bits as the sequential engine.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from fedhv.client import Client
from fedhv.cohort import Cohort
from fedhv.engines.base import Engine
from fedhv.engines.shared import Board, Note
from fedhv.errors import FedHVError, InputError
from fedhv.messages import Replies, Reply, Request, collect
from fedhv.problem import Problem

DEATHS = 3
"""So many workers may die on one client before the run stops."""


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
        self.count = workers or os.cpu_count() or 1
        self._board = Board(self.layout, places=2 * self.count)
        self._workers: list[_Worker] = []

    def ask(self, request: Request, cohort: Cohort) -> Replies:
        """The cohort's answers, as many at a time as there are workers."""
        if self._board.make_room(request, len(cohort)):
            self._dismiss()  # workers see only the memory that was there when they were forked
        while len(self._workers) < self.count:
            self._hire()
        return collect(request, cohort, self.layout, self._answers(self._board.post(request), cohort))

    def _answers(self, note: Note, cohort: Cohort) -> Iterator[Reply]:
        """The answers in the cohort's order; a client whose worker died is given to another one."""
        waiting = list(range(len(cohort)))
        running: dict[int, int] = {}  # worker -> position in the cohort
        ready: dict[int, Any] = {}
        deaths: dict[int, int] = {}
        due = 0
        while due < len(cohort):
            for i, worker in enumerate(self._workers):
                # A place on the board is free again once the answer that lay there has been summed.
                if i not in running and waiting and waiting[0] < due + self._board.places:
                    running[i] = waiting.pop(0)
                    alone = replace(cohort, clients=[cohort.clients[running[i]]])
                    worker.connection.send((note, alone, running[i]))
            connections = {id(self._workers[i].connection): i for i in running}
            for connection in wait([self._workers[i].connection for i in running]):
                i = connections[id(connection)]
                position = running.pop(i)
                try:
                    answer = self._workers[i].connection.recv()
                except (EOFError, OSError):
                    deaths[position] = deaths.get(position, 0) + 1
                    if deaths[position] == DEATHS:
                        raise FedHVError(
                            f"Client {cohort.clients[position]} ended its worker process {DEATHS} times in round "
                            f"{cohort.round + 1} (out of memory?). Try --engine sequential."
                        ) from None
                    self.notes.append(f"A worker process died in round {cohort.round + 1}; its client is repeated.")
                    self._replace(i)
                    waiting.insert(0, position)
                    continue
                if isinstance(answer, BaseException):
                    raise answer
                ready[position] = answer
            while due in ready:
                yield self._board.read(note, due, ready.pop(due))
                due += 1

    # --- workers --------------------------------------------------------------------------------------------

    def _hire(self, place: int | None = None) -> None:
        fork = multiprocessing.get_context("fork")
        here, there = fork.Pipe()
        others = [worker.connection for worker in self._workers] + [here]
        process = fork.Process(target=_work, args=(there, others, self.client, self._board), daemon=True)
        process.start()
        there.close()
        worker = _Worker(process, here)
        if place is None:
            self._workers.append(worker)
        else:
            self._workers[place] = worker

    def _replace(self, i: int) -> None:
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


def can_fork() -> bool:
    """Whether workers can inherit the problem."""
    return "fork" in multiprocessing.get_all_start_methods()


def _work(connection: Connection, others: Sequence[Connection], client: Client, board: Board) -> None:
    """A worker's life: answer for one client after the other until the engine hangs up."""
    for other in others:
        other.close()  # an inherited end would keep a pipe open after the engine has closed it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the engine's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    with suppress(EOFError, OSError):  # the engine has hung up: nobody is left to answer
        while True:
            note, cohort, position = connection.recv()
            connection.send(_answer(note, cohort, position, client, board))


def _answer(note: Note, cohort: Cohort, position: int, client: Client, board: Board) -> Any:
    """What is sent back for one client: the small part of its answer, or what went wrong."""
    (k,) = cohort.clients
    try:
        return board.write(client.answer(board.request(note, cohort, position), cohort, k), position)
    except FedHVError as error:
        return error
    except Exception as error:  # shown by the engine's process, which has the terminal
        return RuntimeError(f"client {k}: {type(error).__name__}: {error}")
