"""Ctrl-C at a time that suits: what must not be interrupted in the middle goes on, and then the signal is handled."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 1.0
"""Seconds after which another Ctrl-C is an impatient one; before, it is the same wish told twice: `timeout` signals a
process and then its group."""


@contextmanager
def held_back(wait: bool = True, patience: float = math.inf, tell: Callable[[], None] | None = None) -> Iterator[Held]:
    """Ctrl-C and SIGTERM wait, until `Held.handle` is called or the end; then they do what they would have done.

    An exception that ends this is the end of the matter. Outside the main thread, which alone hears signals, nothing
    changes.

    Args:
        wait: Whether they have to; for callers with whom it depends.
        patience: A signal that comes so many seconds after the first is handled at once, with it.
        tell: Called when a signal comes that has to wait; from another thread, since the main one may be anywhere.
    """
    held = Held(patience)
    if not wait or threading.current_thread() is not threading.main_thread():
        yield held
        return
    over = threading.Event()
    if tell is not None:
        threading.Thread(target=_tell_once, args=(tell, held, over), daemon=True).start()
    try:
        held._hold()
        yield held
    finally:
        held._release()
        over.set()
        held._first.set()
    held.handle()


class Held:
    """The signals that came and wait."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._came: list[tuple[int, float]] = []
        self._first = threading.Event()
        self._before: dict[int, Any] = {}

    @property
    def pending(self) -> bool:
        """Whether any waits."""
        return bool(self._came)

    def handle(self) -> None:
        """Let the program do what it does about the signals that wait: most often, raise KeyboardInterrupt."""
        if not self._came:
            return
        numbers, holding = dict.fromkeys(number for number, _ in self._came), bool(self._before)
        self._came.clear()
        self._release()
        try:
            for number in numbers:
                signal.raise_signal(number)
        finally:
            if holding:
                self._hold()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came.append((number, time.monotonic()))
        self._first.set()
        if self._came[-1][1] - self._came[0][1] > self._patience:
            self.handle()

    def _hold(self) -> None:
        with blocked(SIGNALS):
            handlers = {number: signal.getsignal(number) for number in SIGNALS}
            # None: not set by Python. What is ignored stays so: nobody waits for it.
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


def _tell_once(tell: Callable[[], None], held: Held, over: threading.Event) -> None:
    held._first.wait()
    if not over.is_set():
        with suppress(OSError, ValueError):  # whoever listened is gone, by the same Ctrl-C perhaps
            tell()
