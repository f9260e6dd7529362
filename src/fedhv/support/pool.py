"""A pool of worker processes, used for the runs of a study and for benchmarks.

Every worker has its own pipe. Workers share no queue and no lock, so one can be stopped at any time without affecting
the others.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
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

from fedhv.support.errors import FedHVError, InputError
from fedhv.support.signals import blocked
from fedhv.support.users_code import keep_place

ATTEMPTS = 3
SECONDS_BETWEEN_TICKS = 0.25
SECONDS_BETWEEN_CHECKS = 1.0
"""Seconds between two checks of a worker that its parent is alive."""
SECONDS_TO_STOP = 10.0
"""Seconds that its task has to save its results if the parent has died."""

Answer = Callable[[Any], Any]


def can_fork() -> bool:
    """Whether workers can be forked, so that they inherit the program's memory. macOS' libraries do not survive it."""
    return sys.platform != "darwin" and "fork" in multiprocessing.get_all_start_methods()


UNGUARDED = 93
"""The exit code of a worker whose import of the user's script starts the script's work again."""


def stop_in_import() -> None:
    """End a worker process that is importing the user's script, where the script starts work at its top level."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        os._exit(UNGUARDED)


# --- in the parent process --------------------------------------------------------------------------------


@dataclass
class _Worker:
    process: Any
    connection: Connection
    task: int | None = None
    """The number of its current task; None while it is idle."""


class Pool:
    """Processes that compute tasks. They start with the first task and run until `close`.

    Args:
        start: Called in every worker before its first task; returns the function that computes a task. A forked worker
            inherits `start`, a spawned worker receives it pickled.
        count: The number of workers.
        fork: Whether workers are forked. Otherwise they are spawned, which works on every system and with CUDA.
        graceful: Whether a running task is interrupted with KeyboardInterrupt and awaited when the pool closes, so that
            it can save its results. Otherwise its worker is killed. Only graceful workers may start processes.
        warn: Called with a message when a worker died and its task is repeated.
        remedy: What to do, for the error about a task whose worker died in every attempt.
        attempts: How often a task is tried if its worker dies.
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
        """The results of tasks 0 … count − 1, in this order. An exception in a worker is raised here.

        Args:
            task: Returns the task with this number. Called when a worker is free, and again after a worker died.
            count: The number of tasks.
            ahead: How many tasks may be started or finished before the caller has read the first of their results; no
                limit by default.
            name: The name of a task in messages.
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
                            with suppress(OSError):  # a worker that died while idle is detected below
                                worker.connection.send(task(worker.task))
                    for worker in self._ready():
                        assert worker.task is not None
                        number, worker.task = worker.task, None
                        try:
                            answered, answer = worker.connection.recv()
                        except (EOFError, OSError):
                            self._remove(worker)
                            if worker.process.exitcode == UNGUARDED:
                                raise InputError(
                                    "Worker processes import your script, which should not start work then. Put its "
                                    'calls under `if __name__ == "__main__":`.'
                                ) from None
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
                self.close()  # pending answers must not be read as answers to the next tasks

    def ask(self, task: Any, name: str = "The task") -> Any:
        """The result of a single task."""
        (answer,) = self.results(lambda _: task, 1, name=lambda _: name)
        return answer

    def _start_workers(self, count: int) -> None:
        """Start workers until there are this many."""
        while len(self._workers) < count:
            with self._sigint_blocked():  # Ctrl-C goes to every process of a terminal; workers start without it
                here, there = self._context.Pipe()
                # A forked worker inherits the parent's pipe ends and closes them; otherwise no pipe would ever break.
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
        """The workers that have answered or died, after a short wait."""
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
        finally:  # a second Ctrl-C kills the workers at once
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
            ensure_running()  # Python's resource tracker: starting it later would unblock the signal
        with blocked([signal.SIGINT]):
            yield


# --- in a worker ------------------------------------------------------------------------------------------


class _State:
    busy = False


def _work(
    connection: Connection, inherited: Sequence[Connection], parent: int, start: Callable[[], Answer], graceful: bool
) -> None:
    """Compute one task after the other until the parent closes the pipe or dies."""
    for each in inherited:
        each.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and stops its workers
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

    with suppress(EOFError, OSError, KeyboardInterrupt):  # the pipe is closed, or a task was interrupted
        while True:
            connection.send(_answered(answer, connection.recv(), state, graceful))


def _answered(answer: Answer, task: Any, state: _State, graceful: bool) -> tuple[bool, Any]:
    """Whether a task succeeded, and its result or its exception."""
    state.busy = graceful
    try:
        if graceful:
            signal.signal(signal.SIGTERM, _interrupt)
        return True, answer(task)
    except FedHVError as error:
        return False, error
    except BaseException as error:
        # Builtin exceptions can be pickled; others may not.
        sent = error if type(error).__module__ == "builtins" else RuntimeError(f"{type(error).__name__}: {error}")
        keep_place(error, sent)
        sent.add_note(traceback.format_exc())  # the traceback itself is not sent
        return False, sent
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        state.busy = False


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _end_with_parent(parent: int, state: _State) -> None:
    """Stop soon after the parent has died without closing the pool."""
    while os.getppid() == parent:
        time.sleep(SECONDS_BETWEEN_CHECKS)
    if state.busy:
        os.kill(os.getpid(), signal.SIGTERM)
    end = time.monotonic() + SECONDS_TO_STOP
    while state.busy and time.monotonic() < end:
        time.sleep(0.1)
    os._exit(1)
