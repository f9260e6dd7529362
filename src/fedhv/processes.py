"""Calls in worker processes that can be interrupted, and of which one that fails does not stop the others."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from types import FrameType
from typing import Any, TypeVar

from fedhv.errors import FedHVError, InputError
from fedhv.jobs import Interrupted

T = TypeVar("T")

SECONDS_BETWEEN_LOOKS = 1.0
"""How soon a worker notices that its parent is gone."""
SECONDS_TO_STOP = 10.0
"""How long it then has to end in good order."""


def in_processes(calls: Sequence[Callable[[], T]], workers: int, tick: Callable[[], None]) -> list[T | FedHVError]:
    """What each call returned, or why it could not; `tick` is called a few times a second.

    When the user interrupts, every worker's call is interrupted too and ends in its own good order. A worker that
    dies takes no finished work with it.
    """
    spawn = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(workers, spawn, initializer=_start_worker, initargs=(os.getpid(),)) as pool:
        futures = [pool.submit(_in_worker, call) for call in calls]
        waiting: set[Future[T]] = set(futures)
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=0.25, return_when=FIRST_COMPLETED)
                tick()
                for future in done:
                    _outcome(future)
            return [_outcome(future) for future in futures]
        except KeyboardInterrupt:
            raise Interrupted("Stopped; every run can be resumed.") from None
        except BrokenProcessPool:
            raise FedHVError("A worker process died. The same command goes on where it was.") from None
        finally:
            for future in waiting:
                future.cancel()
            for child in set(multiprocessing.active_children()) - others:
                if waiting:
                    child.terminate()  # a worker takes this as a word, not as its end


def _outcome(future: Future[Any]) -> Any:
    """A call's result or its failure; bad input, an interruption and mistakes of the program end everything."""
    error = future.exception()
    if isinstance(error, FedHVError) and not isinstance(error, InputError | Interrupted):
        return error
    return future.result()


def _start_worker(parent: int) -> None:
    """Ctrl-C reaches every process of the terminal; workers leave it to the parent, who tells them to stop.

    One that has nothing to do must not die of that: it holds the lock of the queue that all of them read, and the
    others would wait for ever. It ends when the pool is closed.

    A parent that was killed ends nobody: its workers notice and stop in good order, as if told to, and at the latest
    a little later. What they had saved is resumed by the same command.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _note)
    threading.Thread(target=_outlive_nobody, args=(parent,), daemon=True).start()


def _outlive_nobody(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    os.kill(os.getpid(), signal.SIGTERM)
    end = time.monotonic() + SECONDS_TO_STOP
    while _busy and time.monotonic() < end:
        time.sleep(0.1)
    os._exit(1)


_busy = False
"""In a worker: whether it has a call to answer."""
_stopped = False
"""In a worker: whether it has been told to stop; the pool may have handed it another call already."""


def _note(number: int, frame: FrameType | None) -> None:
    global _stopped
    _stopped = True


def _stop(number: int, frame: FrameType | None) -> None:
    _note(number, frame)
    raise KeyboardInterrupt


def _in_worker(call: Callable[[], T]) -> T:
    global _busy
    _busy = True
    try:
        signal.signal(signal.SIGTERM, _stop)
        if _stopped:
            raise Interrupted("Not started.")
        return call()
    finally:
        signal.signal(signal.SIGTERM, _note)
        _busy = False
