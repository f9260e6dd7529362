"""One exchange with several nodes: all messages are sent at once, and waiting has a limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter

from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from fedhv.flower.mailbox import Mailbox
from fedhv.support.errors import FedHVError, printable

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
"""Seconds between two polls: short at first, then longer. (Flower's own loop polls every three seconds.)"""


@dataclass(frozen=True)
class Quorum:
    """Closes an exchange before its deadline: `grace` seconds after this number of replies without errors."""

    replies: int
    grace: float


def exchange(
    grid: Grid,
    messages: Sequence[Message],
    seconds: float,
    quorum: Quorum | None = None,
    arrivals: dict[str, float] | None = None,
) -> dict[str, Message]:
    """Send messages and wait for the replies, at most `seconds`; returns them by the id of the answered message.

    A quorum closes the exchange earlier. Later replies have the ids of old messages, so they cannot be taken for
    replies of a later round. `arrivals` receives the seconds until each reply arrived.

    Errors of the infrastructure (a node has left, a message has expired) have the SuperLink as their source. Only the
    id of the answered message identifies the node.
    """
    replies: dict[str, Message] = {}
    with Mailbox(grid) as mailbox:
        mailbox.send(messages)
        began, good = perf_counter(), 0
        end, pause = time.monotonic() + seconds, FIRST_PAUSE
        while mailbox.waiting and (left := end - (now := time.monotonic())) > 0:
            for reply in mailbox.take(min(pause, left)):
                identifier = reply.metadata.reply_to_message_id
                replies[identifier] = reply
                if arrivals is not None:
                    arrivals[identifier] = perf_counter() - began
                good += not reply.has_error()
                if quorum is not None and good == quorum.replies and not reply.has_error():
                    end = min(end, now + quorum.grace)
            pause = min(1.5 * pause, LONGEST_PAUSE)
        if not replies and mailbox.trouble is not None:
            raise FedHVError(f"The SuperLink does not answer: {mailbox.trouble}.")
    return replies


class FrequentPolling(Grid):
    """A grid that polls as often as `exchange`; all other calls are forwarded.

    It is for Flower's own loop, which waits in the grid's `send_and_receive`.
    """

    def __init__(
        self,
        grid: Grid,
        quorum: Callable[[int], Quorum | None] = lambda asked: None,
        arrivals: dict[str, float] | None = None,
    ) -> None:
        self._grid, self._quorum, self._arrivals = grid, quorum, arrivals

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Push, and pull until all replies have arrived or the time limit (one hour by default) is over."""
        sent, seconds = list(messages), 3600.0 if timeout is None else timeout
        return list(exchange(self._grid, sent, seconds, self._quorum(len(sent)), self._arrivals).values())

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Pass it on."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Pass it on."""
        return self._grid.pull_messages(message_ids)

    def get_node_ids(self) -> Iterable[int]:
        """Pass it on."""
        return self._grid.get_node_ids()

    def set_run(self, run: Run) -> None:
        """Pass it on."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """Pass it on."""
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Pass it on."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)


REASONS = {
    ErrorCode.LOAD_CLIENT_APP_EXCEPTION: "its app could not be loaded",
    ErrorCode.CLIENT_APP_RAISED_EXCEPTION: "its app raised",
    ErrorCode.MESSAGE_UNAVAILABLE: "its message has expired",
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE: "its reply is not available",
    ErrorCode.NODE_UNAVAILABLE: "the node has left or misses heartbeats",
    ErrorCode.MOD_FAILED_PRECONDITION: "a mod refused the message",
    ErrorCode.INVALID_FAB: "its app could not be verified",
    ErrorCode.CLIENT_APP_CRASHED: "its app crashed",
}
"""The meaning of Flower's error codes."""

SUPERLINKS = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE)
"""Errors of the SuperLink: the node has not answered. Their longer text adds nothing."""

LONGEST_REASON = 300


def reason(reply: Message) -> str:
    """The reason of an error reply as one printable line, because its text comes from a node and is shown to users."""
    what = REASONS.get(reply.error.code, f"error {reply.error.code}")
    if reply.error.code in SUPERLINKS:
        return what
    more = printable(" ".join((reply.error.reason or "").split()))
    if "<'" in more:  # Flower writes exceptions as "<class 'X'>:<'text'>"
        kind, more = more.split("<'", 1)
        more = more.removesuffix("'>")
        name = kind.rpartition("'")[0].rpartition("'")[2].rpartition(".")[2]
        if not more or name == "KeyError":  # the text of a KeyError is the key alone
            more = f"{name} {more}".strip()
    more = more.rstrip(".")  # it is a part of sentences
    return f"{what}: {more}"[:LONGEST_REASON] if more else what
