"""The time limits of a server."""

from __future__ import annotations

from dataclasses import dataclass

from fedhv.support.errors import InputError


@dataclass(frozen=True)
class Patience:
    """The time limits of a server, in seconds.

    Attributes:
        reply: The limit for the replies of one exchange. A client without a reply by then is left out of the round.
        nodes: The limit for nodes to become available: at the start all of them, later as many as a round needs. After
            a server was killed, Flower takes a minute or more to free nodes that were receiving from it, unless the
            run is stopped. A run with the same result as an uninterrupted one has to wait for them.
        again: The interval between two hello messages to a node whose answer was missing or invalid.
    """

    reply: float = 600.0
    nodes: float = 180.0
    again: float = 30.0

    def __post_init__(self) -> None:
        for name, option in (("reply", "reply-seconds"), ("nodes", "node-seconds"), ("again", "again")):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise InputError(f"`{option}` should be a positive, finite number of seconds. Found {value}.")
