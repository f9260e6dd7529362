"""Replies, taken in without ever being held up by one of them.

A node that dies while it uploads leaves a reply that is there and cannot be read. Flower then waits for the missing
parts, three minutes, with everybody else in line behind; here that happens in a thread, one reply at a time, and
whoever is stuck is left standing.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from flwr.app import Message
from flwr.serverapp import Grid

STUCK = 3.0
"""Seconds after which the others are no longer kept waiting for a reply that does not come through."""


class Mailbox:
    """Sends messages through a grid, and takes in the replies as they come.

    Attributes:
        waiting: The ids of the messages that are not answered yet.
        trouble: What went wrong when replies were last looked for.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.waiting: set[str] = set()
        self.trouble: Exception | None = None
        self._stuck: set[str] = set()
        self._arrived: queue.SimpleQueue[Message | Exception] = queue.SimpleQueue()
        self._walk: _Walk | None = None

    def send(self, messages: Sequence[Message]) -> list[str]:
        """Send messages without waiting; returns the ids under which they are answered."""
        sent = [str(identifier) for identifier in self.grid.push_messages(messages) if identifier]
        self.waiting |= set(sent)
        return sent

    def take(self, seconds: float) -> list[Message]:
        """The replies that have arrived, or the first that arrive within so many seconds."""
        self._look()
        found: list[Message] = []
        end = time.monotonic() + seconds
        while True:
            try:
                left = 0.0 if found else max(0.0, end - time.monotonic())
                arrived = self._arrived.get(timeout=left) if left else self._arrived.get_nowait()
            except queue.Empty:
                return found
            if isinstance(arrived, Exception):
                self.trouble = arrived
            elif arrived.metadata.reply_to_message_id in self.waiting:
                self.waiting.discard(arrived.metadata.reply_to_message_id)
                self.trouble = None
                found.append(arrived)

    def _look(self) -> None:
        """See to it that somebody looks for replies."""
        walk = self._walk
        if walk is not None and walk.is_alive():
            if time.monotonic() - walk.since < STUCK:
                return
            walk.stop()  # it may still bring the one reply it is at
            self._stuck.add(walk.at)
        doors = sorted(self.waiting - self._stuck)
        self._walk = _Walk(self.grid, doors, self._arrived) if doors else None
        if self._walk is not None:
            self._walk.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._walk is not None:
            self._walk.stop()


class _Walk(threading.Thread):
    """Looks for one reply after the other, once. As a daemon it keeps no process alive."""

    def __init__(self, grid: Grid, doors: Iterable[str], arrived: queue.SimpleQueue[Message | Exception]) -> None:
        super().__init__(daemon=True, name="fedhv-replies")
        self._grid, self._doors, self._arrived = grid, list(doors), arrived
        self._stopped = False
        self.at, self.since = "", time.monotonic()

    def stop(self) -> None:
        """End after the reply that it is at."""
        self._stopped = True

    def run(self) -> None:
        """From door to door."""
        for door in self._doors:
            if self._stopped:
                return
            self.at, self.since = door, time.monotonic()
            try:
                for reply in self._grid.pull_messages({door}):
                    self._arrived.put(reply)
            except Exception as error:  # whoever waits decides what that means
                self._arrived.put(error)
                return
