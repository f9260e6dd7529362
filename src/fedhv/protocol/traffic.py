"""Communication, counted from the messages, for every method and every transport."""

from __future__ import annotations

from dataclasses import dataclass

from fedhv.problem.parameters import Layout
from fedhv.protocol.request import Request

BYTES_PER_SCALAR = 4


@dataclass(frozen=True)
class Traffic:
    """Bytes between the server and all clients together."""

    down: int = 0
    up: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.down + other.down, self.up + other.up)

    @property
    def total(self) -> int:
        """Both directions."""
        return self.down + self.up


def traffic(request: Request, layout: Layout, asked: int, answered: int | None = None) -> Traffic:
    """What one exchange moves: to every client that was asked, from every client that answered."""
    layout = layout.travelling
    answered = asked if answered is None else answered
    down, up = sum(request.down(layout).values()), sum(request.up(layout).values())
    return Traffic(BYTES_PER_SCALAR * down * asked, BYTES_PER_SCALAR * up * answered)
