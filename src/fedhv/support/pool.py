"""Worker processes that answer tasks: one pool for a study's runs and for a round's clients.

Every worker has a pipe of its own and shares no queue and no lock with the others, so it can be stopped at any time
without harm to the rest.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.resource_tracker import ensure_running
from types import FrameType
from typing import Any

from fedhv.support.errors import FedHVError
from fedhv.support.signals import blocked

ATTEMPTS = 3
SECONDS_BETWEEN_TICKS = 0.25
SECONDS_BETWEEN_CHECKS = 1.0
"""How soon a worker notices that its parent is gone."""
SECONDS_TO_STOP = 10.0
"""How long its task then has to save what it has."""

Answer = Callable[[Any], Any]


def can_fork() -> bool:
    """Whether workers can inherit what the program has in memory."""
    return "fork" in multiprocessing.get_all_start_methods()


# --- the program's side -----------------------------------------------------------------------------------


@dataclass
class _Worker:
    process: Any
    connection: Connection
    task: int | None = None
    """What it works on; None while it is idle."""


class Pool:
    """Processes that answer tasks. They start with the first task and stay until `close`.

    Args:
        start: Called in every worker before its first task; returns the function that answers a task. A forked worker
            inherits what `start` refers to, a spawned one receives it pickled.
        count: The number of workers.
        fork: Whether workers are forked; otherwise they are spawned, which every system can do and CUDA needs.
        graceful: Whether a task that runs when the pool closes ends with KeyboardInterrupt and is waited for, because
            it saves its work; otherwise its worker is killed. Only graceful workers may start processes themselves.
        warn: Called with a sentence when a worker died and its task is repeated.
        remedy: A sentence for the error about a task that ended its worker every time.
        attempts: A task whose worker died is given to another worker, until this many have died.
    """

    def __init__(
        self,
        start: Callable[[], Answer],
        count: int,
        *,
        fork: bool = False,
        graceful: bool = False,
        warn: Callable[[str], None] = lambda sentence: None,
        remedy: str = "",
        attempts: int = ATTEMPTS,
    ) -> None:
        self._attempts = attempts
        self._start, self._count, self._graceful, self._warn, self._remedy = start, count, graceful, warn, remedy
        self._context: Any = multiprocessing.get_context("fork" if fork else "spawn")
        self._forks = fork
        self._workers: list[_Worker] = []

    def results(
        self,
        task: Callable[[int], Any],
        count: int,
        *,
        ahead: int | None = None,
        name: Callable[[int], str] = "Task {}".format,
        tick: Callable[[], None] = lambda: None,
    ) -> Iterator[Any]:
        """The answers to tasks 0 … count − 1, in this order. An exception in a worker is raised here.

        Args:
            task: Makes the task with this number when a worker is free for it, and again where a worker died on it.
            count: The number of tasks.
            ahead: A task is given out only when fewer than this many others before it wait for their answer to be
                taken; by default there is no limit.
            name: What messages call a task.
            tick: Called a few times a second.
        """
        waiting = list(range(count))
        deaths = [0] * count
        answers: dict[int, Any] = {}
        try:
            for due in range(count):
                while due not in answers:
                    limit = count if ahead is None else due + ahead
                    self._start_workers(min(self._count, count))
                    for worker in self._workers:
                        if worker.task is None and waiting and waiting[0] < limit:
                            worker.task = waiting.pop(0)
                            with suppress(OSError):  # that it died while idle is noticed below
                                worker.connection.send(task(worker.task))
                    for worker in self._ready():
                        assert worker.task is not None
                        number, worker.task = worker.task, None
                        try:
                            answered, answer = worker.connection.recv()
                        except (EOFError, OSError):
                            self._remove(worker)
                            deaths[number] += 1
                            if deaths[number] == self._attempts:
                                times = f" {self._attempts} times" if self._attempts > 1 else ""
                                died = f"{name(number)} ended its worker process{times} (out of memory?)."
                                raise FedHVError(f"{died} {self._remedy}".strip()) from None
                            self._warn(f"A worker process died. {name(number)} is repeated.")
                            waiting.insert(0, number)
                            continue
                        if not answered:
                            raise answer
                        answers[number] = answer
                    tick()
                yield answers.pop(due)
        finally:
            if any(worker.task is not None for worker in self._workers):
                self.close()  # or answers that nobody awaits would be taken for those of the next tasks

    def ask(self, task: Any, name: str = "The task") -> Any:
        """The answer to a single task."""
        (answer,) = self.results(lambda _: task, 1, name=lambda _: name)
        return answer

    def _start_workers(self, count: int) -> None:
        """Start workers until there are this many."""
        while len(self._workers) < count:
            with self._sigint_blocked():  # Ctrl-C reaches every process of a terminal; workers start without it
                here, there = self._context.Pipe()
                # A forked worker inherits the program's ends of all pipes: it closes them, or none would ever break.
                inherited = [*(worker.connection for worker in self._workers), here] if self._forks else []
                process = self._context.Process(
                    target=_work,
                    args=(there, inherited, os.getpid(), self._start, self._graceful),
                    daemon=not self._graceful,
                )
                process.start()
                there.close()
                self._workers.append(_Worker(process, here))

    def _ready(self) -> list[_Worker]:
        """The workers that have answered or died, within a moment."""
        busy = {id(worker.connection): worker for worker in self._workers if worker.task is not None}
        found = wait([worker.connection for worker in busy.values()], timeout=SECONDS_BETWEEN_TICKS)
        return [busy[id(connection)] for connection in found]

    def _remove(self, worker: _Worker) -> None:
        worker.connection.close()
        worker.process.join()
        self._workers.remove(worker)

    def close(self) -> None:
        """Stop all workers."""
        workers, self._workers = self._workers, []
        try:
            for worker in workers:
                if self._graceful and worker.task is not None:
                    worker.process.terminate()
                else:
                    worker.process.kill()
                worker.connection.close()
            for worker in workers:
                worker.process.join()
        finally:  # a second Ctrl-C waits for nothing
            for worker in workers:
                worker.process.kill()
                worker.process.join()

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers."""
        return [worker.process.pid for worker in self._workers]

    @contextmanager
    def _sigint_blocked(self) -> Iterator[None]:
        if not self._forks and hasattr(signal, "pthread_sigmask"):
            ensure_running()  # Python's own helper process: its start would end the blocking
        with blocked([signal.SIGINT]):
            yield


# --- a worker's side --------------------------------------------------------------------------------------


class _State:
    busy = False


def _work(
    connection: Connection, inherited: Sequence[Connection], parent: int, start: Callable[[], Answer], graceful: bool
) -> None:
    """Answer one task after the other until the program closes the pipe, or is gone."""
    for each in inherited:
        each.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program hears Ctrl-C and stops its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    state = _State()
    threading.Thread(target=_end_with_parent, args=(parent, state), daemon=True).start()
    answers: list[Answer] = []

    def answer(task: Any) -> Any:
        if not answers:
            answers.append(start())
        return answers[0](task)

    with suppress(EOFError, OSError, KeyboardInterrupt):  # the pipe is closed, or a task ended as it was stopped
        while True:
            connection.send(_answered(answer, connection.recv(), state, graceful))


def _answered(answer: Answer, task: Any, state: _State, graceful: bool) -> tuple[bool, Any]:
    """Whether a task was answered, and its answer or the exception that it ended with."""
    state.busy = graceful
    try:
        if graceful:
            signal.signal(signal.SIGTERM, _interrupt)
        return True, answer(task)
    except FedHVError as error:
        return False, error
    except BaseException as error:
        # Python's own exceptions can be sent through a pipe; others perhaps not.
        sent = error if type(error).__module__ == "builtins" else RuntimeError(f"{type(error).__name__}: {error}")
        sent.add_note(traceback.format_exc())  # where it happened, which the program cannot see
        return False, sent
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        state.busy = False


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _end_with_parent(parent: int, state: _State) -> None:
    """Stop soon after the program is gone without having closed the pool: it was killed."""
    while os.getppid() == parent:
        time.sleep(SECONDS_BETWEEN_CHECKS)
    if state.busy:
        os.kill(os.getpid(), signal.SIGTERM)
    end = time.monotonic() + SECONDS_TO_STOP
    while state.busy and time.monotonic() < end:
        time.sleep(0.1)
    os._exit(1)
