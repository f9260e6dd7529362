"""A time limit for a node's app. While an app hangs, its SuperNode answers no other message."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable

from fedhv.support.errors import FedHVError

LEAST = 60.0
"""Seconds that an app always has, however short the server's deadline is."""


def bounded(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A modifier that ends the computation of a reply once the server no longer waits for it."""
    with time_limit(max(LEAST, message.metadata.ttl)):
        return call_next(message, context)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise in this block after some seconds. Outside of a process' main thread nothing is bounded."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise FedHVError(f"this node ended the computation after {seconds:g} s, since the server no longer waits")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
