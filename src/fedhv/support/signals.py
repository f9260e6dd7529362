"""Ctrl-C and SIGTERM that take effect later: what must not be interrupted in the middle is finished first."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 1.0
"""Seconds after which a second signal is handled at once. Before, it is the first one sent again: `timeout` signals a
process and then its group."""


@contextmanager
def deferred_signals(wait: bool = True, patience: float = math.inf) -> Iterator[DeferredSignals]:
    """Ctrl-C and SIGTERM wait until `DeferredSignals.handle` is called or the end; then they do what they would have done.

    If an exception ends the block, they are dropped. Outside the main thread, which alone receives signals, nothing
    changes.

    Args:
        wait: Whether they wait at all; for callers with whom it depends.
        patience: A signal that comes this many seconds after the first is handled at once.
    """
    held = DeferredSignals(patience)
    if not wait or threading.current_thread() is not threading.main_thread():
        yield held
        return
    try:
        held._hold()
        yield held
    finally:
        held._release()
    held.handle()


class DeferredSignals:
    """The signals that wait."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._came: dict[int, None] = {}
        self._first = math.inf
        self._before: dict[int, Any] = {}

    @property
    def pending(self) -> bool:
        """Whether any waits."""
        return bool(self._came)

    def handle(self) -> None:
        """Let the program do what it does about the signals that wait: most often, raise KeyboardInterrupt."""
        if not self._came:
            return
        numbers, holding = list(self._came), bool(self._before)
        self._came.clear()
        self._release()
        try:
            for number in numbers:
                signal.raise_signal(number)
        finally:
            if holding:
                self._hold()

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self._came:
            self._first = now
        self._came[number] = None
        if now - self._first > self._patience:
            self.handle()

    def _hold(self) -> None:
        with blocked(SIGNALS):
            handlers = {number: signal.getsignal(number) for number in SIGNALS}
            # None: not set by Python. A signal that is ignored stays ignored.
            self._before = {n: handler for n, handler in handlers.items() if handler not in (None, signal.SIG_IGN)}
            for number in self._before:
                signal.signal(number, self._note)

    def _release(self) -> None:
        with blocked(SIGNALS):
            for number, handler in self._before.items():
                signal.signal(number, handler)
            self._before = {}


@contextmanager
def blocked(numbers: Iterable[int]) -> Iterator[None]:
    """These signals come afterwards, where the system can do that; processes that are started meanwhile inherit it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
