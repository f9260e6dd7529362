"""A clock for servers in this process: time passes only while no reply is on its way, whatever the machine does."""

from __future__ import annotations

import threading

STEP = 0.05


class Clock:
    """In the place of the module `time`.

    Attributes:
        stuck: How many looks for a reply never come back; time passes beside them.
    """

    def __init__(self) -> None:
        self.stuck = 0
        self._now = 0.0

    def monotonic(self) -> float:
        """A little later each time it is asked while nothing is on its way."""
        looking = sum(thread.name == "fedhv-replies" for thread in threading.enumerate())
        if looking <= self.stuck:
            self._now += STEP
        return self._now
