"""Ctrl-C between rounds: in the middle of one, libraries that drive a GPU may not survive it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SAME = 1.0
"""Seconds within which another signal is the same wish told twice: `timeout` signals a process and then its group."""


WAITING = b"\nStopping after this round; Ctrl-C again stops at once.\n"


@contextmanager
def between_rounds(wait: bool) -> Iterator[Callable[[], None]]:
    """Ctrl-C is heard when the function that this yields is called, or at the end; a second Ctrl-C at once.

    So is SIGTERM, where the program has given it that meaning.

    Args:
        wait: Whether to do so; otherwise, and beside the main thread, which alone hears signals, nothing changes.
    """
    if not wait or threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    came: list[float] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(time.monotonic())
        if came[-1] - came[0] > SAME:
            raise KeyboardInterrupt
        if len(came) == 1:
            os.write(2, WAITING)  # past Python's buffers, whose owner this may have interrupted

    def heard() -> None:
        if came:
            raise KeyboardInterrupt

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    ours = [number for number, handler in handlers.items() if callable(handler)]  # not ignored, nor left to the system
    try:
        for number in ours:
            signal.signal(number, note)
        yield heard
    finally:
        for number in ours:
            signal.signal(number, handlers[number])
    heard()
