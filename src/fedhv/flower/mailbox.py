"""Replies, taken in without ever being held up by one of them.

A node that dies while it uploads leaves a reply that is there and cannot be read. Flower then waits for the missing
parts, three minutes, with everybody else in line behind; here that happens in a thread, one reply at a time, and
whoever is stuck is left standing. A reply that Flower cannot unpack is an error in the place of its node's answer.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import httpx
from flwr.app import Error, Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

STUCK = 3.0
"""Seconds after which the others are no longer kept waiting for a reply that does not come through."""

TRANSPORT = (httpx.HTTPError, OSError)
"""What goes wrong on the way to the SuperLink. Anything else is about the one reply that was looked for."""

Arrival = Message | Exception | None
"""A reply; or what became of a walk: why it has nowhere come through, None where it has."""


class Mailbox:
    """Sends messages through a grid, and takes in the replies as they come.

    Attributes:
        waiting: The messages that are not answered yet, by their ids.
        trouble: Why the SuperLink does not answer, where it did not when replies were last looked for.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.waiting: dict[str, Message] = {}
        self.trouble: Exception | None = None
        self._stuck: set[str] = set()
        self._arrived: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        self._walk: _Walk | None = None

    def send(self, messages: Sequence[Message]) -> list[str]:
        """Send messages without waiting; returns the ids under which they are answered."""
        identifiers = self.grid.push_messages(messages)  # one for each, or none at all where they are too much
        sent = {str(each): message for each, message in zip(identifiers, messages, strict=False) if each}
        self.waiting |= sent
        return list(sent)

    def take(self, seconds: float) -> list[Message]:
        """The replies that have arrived, or the first that arrive within the given seconds."""
        self._look()
        found: list[Message] = []
        end = time.monotonic() + seconds
        while True:
            try:
                left = 0.0 if found else max(0.0, end - time.monotonic())
                arrived = self._arrived.get(timeout=left) if left else self._arrived.get_nowait()
            except queue.Empty:
                return found
            if not isinstance(arrived, Message):
                self.trouble = arrived
            elif self.waiting.pop(arrived.metadata.reply_to_message_id, None) is not None:
                found.append(arrived)

    def _look(self) -> None:
        """Start the thread that polls for replies, if it does not run."""
        walk = self._walk
        if walk is not None and walk.is_alive():
            if time.monotonic() - walk.since < STUCK:
                return
            walk.stop()  # it may still bring the one reply it is at
            self._stuck.add(walk.at)
        doors = {each: self.waiting[each] for each in sorted(self.waiting.keys() - self._stuck)}
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

    def __init__(self, grid: Grid, doors: Mapping[str, Message], arrived: queue.SimpleQueue[Arrival]) -> None:
        super().__init__(daemon=True, name="fedhv-replies")
        self._grid, self._doors, self._arrived = grid, doors, arrived
        self._stopped = False
        self.at, self.since = "", time.monotonic()

    def stop(self) -> None:
        """End after the reply that it is at."""
        self._stopped = True

    def run(self) -> None:
        """From door to door, whatever is behind one of them."""
        through, trouble = False, None
        for door, message in self._doors.items():
            if self._stopped:
                break
            self.at, self.since = door, time.monotonic()
            try:
                for reply in self._grid.pull_messages({door}):
                    self._arrived.put(reply)
                through = True
            except TRANSPORT as error:
                trouble = error
            except Exception as error:  # Flower has taken the reply and cannot unpack it: it does not come again
                through = True
                self._arrived.put(Message(Error(ErrorCode.REPLY_MESSAGE_UNAVAILABLE, str(error)), reply_to=message))
        if through or trouble is not None:
            self._arrived.put(None if through else trouble)
