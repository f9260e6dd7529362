"""Calls in worker processes that can be interrupted, and of which one that fails does not stop the others.

Every worker has a pipe of its own and shares nothing with the others, no queue and no lock: whatever a worker is at,
starting, busy or idle, it can be ended without harm to the rest.
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
from typing import Any, TypeVar

from fedhv.support.errors import FedHVError, InputError, Interrupted
from fedhv.support.signals import blocked

T = TypeVar("T")

SECONDS_BETWEEN_LOOKS = 1.0
"""How soon a worker notices that its parent is gone."""
SECONDS_TO_STOP = 10.0
"""How long it then has to end in good order."""


# --- the program's side -----------------------------------------------------------------------------------


@dataclass
class _Worker:
    """A process and the number of the call that it is at; None while it starts and when it has nothing to do."""

    process: Any
    connection: Connection
    call: int | None = None


def in_processes(calls: Sequence[Callable[[], T]], workers: int, tick: Callable[[], None]) -> list[T | FedHVError]:
    """What each call returned, or why it could not; `tick` is called a few times a second.

    When the user interrupts, every worker's call is interrupted too and ends in its own good order. A worker that
    dies takes no finished work with it.
    """
    outcomes: dict[int, T | FedHVError] = {}
    waiting = list(range(len(calls)))
    team: list[_Worker] = []
    try:
        with _sigint_blocked():  # workers start like that; Ctrl-C reaches every process of a terminal
            team.extend(_hire() for _ in range(min(workers, len(calls))))
        while len(outcomes) < len(calls):
            for worker in _heard(team):
                if worker.call is not None:
                    outcomes[worker.call] = _outcome(_received(worker))
                else:
                    _received(worker)  # it is ready
                worker.call = waiting.pop(0) if waiting else None
                if worker.call is not None:
                    worker.connection.send(calls[worker.call])
            tick()
        return [outcomes[i] for i in range(len(calls))]
    except KeyboardInterrupt:
        raise Interrupted("Stopped; every run can be resumed.") from None
    finally:
        _dismiss(team)


def _hire() -> _Worker:
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=_work, args=(there, os.getpid()))
    process.start()
    there.close()
    return _Worker(process, here)


def _heard(team: Sequence[_Worker]) -> list[_Worker]:
    """Those that have something to say, within a quarter of a second."""
    ready = {id(connection) for connection in wait([worker.connection for worker in team], timeout=0.25)}
    return [worker for worker in team if id(worker.connection) in ready]


def _received(worker: _Worker) -> Any:
    try:
        return worker.connection.recv()
    except (EOFError, OSError):
        raise FedHVError("A worker process died. The same command goes on where it was.") from None


def _outcome(answer: Any) -> Any:
    """A call's result or its failure; bad input, an interruption and mistakes of the program end everything."""
    failed = isinstance(answer, FedHVError) and not isinstance(answer, InputError | Interrupted)
    if isinstance(answer, BaseException) and not failed:
        raise answer
    return answer


def _dismiss(team: Sequence[_Worker]) -> None:
    """End all workers: those that have nothing to do at once, the others when they have saved what they have."""
    for worker in team:
        if worker.call is None:
            worker.process.kill()
        else:
            worker.process.terminate()
        worker.connection.close()
    try:
        for worker in team:
            worker.process.join()
    finally:  # a second Ctrl-C waits for nobody
        for worker in team:
            worker.process.kill()


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Processes that are started meanwhile do not hear Ctrl-C before they can tell what it means."""
    if hasattr(signal, "pthread_sigmask"):
        ensure_running()  # Python's own helper process: its start would end the blocking
    with blocked([signal.SIGINT]):
        yield


# --- a worker's side --------------------------------------------------------------------------------------

_busy = False


def _work(connection: Connection, parent: int) -> None:
    """A worker's life: one call after the other until the program hangs up.

    Ctrl-C is the program's to hear; it tells its workers by SIGTERM, which interrupts a call and ends an idle worker.
    A program that was killed tells nobody: its workers notice and stop in good order, as if told to, and at the latest
    a little later. What they had saved is resumed by the same command.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_outlive_nobody, args=(parent,), daemon=True).start()
    with suppress(EOFError, OSError, KeyboardInterrupt):  # the program has hung up, or a call ended as it was stopped
        connection.send(None)
        while True:
            connection.send(_answer(connection.recv()))


def _answer(call: Callable[[], Any]) -> Any:
    """What a call returns, or the exception that it ends with."""
    global _busy
    _busy = True
    try:
        signal.signal(signal.SIGTERM, _stop)
        return call()
    except FedHVError as error:
        return error
    except KeyboardInterrupt:
        return Interrupted("Stopped.")
    except BaseException as error:
        # Python's own exceptions survive a pipe; of others one cannot be sure.
        ours = type(error).__module__ == "builtins"
        said = error if ours else RuntimeError(f"{type(error).__name__}: {error}")
        said.add_note(traceback.format_exc())  # where it happened, which the program cannot see
        return said
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _busy = False


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _outlive_nobody(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    if _busy:
        os.kill(os.getpid(), signal.SIGTERM)
    end = time.monotonic() + SECONDS_TO_STOP
    while _busy and time.monotonic() < end:
        time.sleep(0.1)
    os._exit(1)
