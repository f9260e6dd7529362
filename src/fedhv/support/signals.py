"""Deferred signals: SIGINT (Ctrl-C) and SIGTERM take effect at the end of a block."""

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
"""Seconds after which a second signal is handled at once. An earlier one counts as a repetition of the first: `timeout`
signals a process and then its group."""


@contextmanager
def deferred_signals(wait: bool = True, patience: float = math.inf) -> Iterator[DeferredSignals]:
    """Defer SIGINT and SIGTERM until `DeferredSignals.handle` is called or the block ends; then handle them as usual.

    If an exception ends the block, deferred signals are dropped. Only the main thread receives signals; in other
    threads this does nothing.

    Args:
        wait: Whether to defer at all.
        patience: A signal that arrives this many seconds after the first is handled at once.
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
    """The signals that have arrived in a block."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._came: dict[int, None] = {}
        self._first = math.inf
        self._before: dict[int, Any] = {}

    @property
    def pending(self) -> bool:
        """Whether a signal has arrived."""
        return bool(self._came)

    def handle(self) -> None:
        """Handle the signals that have arrived; this usually raises KeyboardInterrupt."""
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
    """Block these signals until the end, if the system supports it. Processes started inside inherit the block."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
