"""Receives replies; one unreadable reply does not delay the others.

A node that dies during its upload leaves a reply with missing parts. Flower waits three minutes for them, and all other
replies wait behind it. Here a thread pulls one reply at a time, and a reply that blocks it is skipped. A reply that
Flower cannot unpack becomes an error in place of the node's answer.
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
"""Seconds after which a reply that blocks is skipped."""

TRANSPORT = (httpx.HTTPError, OSError)
"""Errors of the connection to the SuperLink. Any other error concerns the pulled reply only."""

Arrival = Message | Exception | None
"""A reply; or the result of one poll: the connection's error, or None if the SuperLink answered."""


class Mailbox:
    """Sends messages answered a grid and receives the replies as they arrive.

    Attributes:
        waiting: The messages that are not answered yet, by their ids.
        trouble: The connection's error in the last poll; None if the SuperLink answered.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.waiting: dict[str, Message] = {}
        self.trouble: Exception | None = None
        self._stuck: dict[str, _Poll] = {}
        """Replies that block, and the threads that wait for them."""
        self._arrived: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        self._poll: _Poll | None = None

    def send(self, messages: Sequence[Message]) -> list[str]:
        """Send messages without waiting; returns their ids."""
        identifiers = self.grid.push_messages(messages)  # one per message, or none if the messages are too large
        sent = {str(each): message for each, message in zip(identifiers, messages, strict=False) if each}
        self.waiting |= sent
        return list(sent)

    def take(self, seconds: float) -> list[Message]:
        """The replies that have arrived, or the first that arrive within the given seconds."""
        self._poll_replies()
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

    def _poll_replies(self) -> None:
        """Start the thread that polls for replies, if it does not run."""
        poll = self._poll
        if poll is not None and poll.is_alive():
            if time.monotonic() - poll.since < STUCK:
                return
            poll.stop()  # its current reply may still arrive
            self._stuck[poll.at] = poll
        # A thread that has ended without its reply found none yet, slowly, or lost the connection: ask again.
        self._stuck = {each: thread for each, thread in self._stuck.items() if thread.is_alive()}
        messages = {each: self.waiting[each] for each in sorted(self.waiting.keys() - self._stuck.keys())}
        self._poll = _Poll(self.grid, messages, self._arrived) if messages else None
        if self._poll is not None:
            self._poll.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._poll is not None:
            self._poll.stop()


class _Poll(threading.Thread):
    """Pulls every reply once, one after the other. A daemon thread, so that the process can exit."""

    def __init__(self, grid: Grid, messages: Mapping[str, Message], arrived: queue.SimpleQueue[Arrival]) -> None:
        super().__init__(daemon=True, name="fedhv-replies")
        self._grid, self._messages, self._arrived = grid, messages, arrived
        self._stopped = False
        self.at, self.since = "", time.monotonic()

    def stop(self) -> None:
        """End after the current reply."""
        self._stopped = True

    def run(self) -> None:
        """Pull the replies; an error with one of them does not stop the others."""
        answered, trouble = False, None
        for identifier, message in self._messages.items():
            if self._stopped:
                break
            self.at, self.since = identifier, time.monotonic()
            try:
                for reply in self._grid.pull_messages({identifier}):
                    self._arrived.put(reply)
                answered = True
            except TRANSPORT as error:
                trouble = error
            except Exception as error:  # Flower has received the reply and cannot unpack it; it is not sent again
                answered = True
                self._arrived.put(Message(Error(ErrorCode.REPLY_MESSAGE_UNAVAILABLE, str(error)), reply_to=message))
        if answered or trouble is not None:
            self._arrived.put(None if answered else trouble)
