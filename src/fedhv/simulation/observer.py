"""Observers of runs, such as progress bars and logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedhv.simulation.record import Round


class Progress(NamedTuple):
    """The progress of a run: its label, its finished rounds, all its rounds, its last evaluated round."""

    label: str
    done: int
    rounds: int
    last: Round | None


class Observer:
    """Receives the events of a run or a study. This one ignores them; subclasses override what they need."""

    def message(self, text: str) -> None:
        """A message for the user."""

    def start(self, label: str, rounds: int, done: int = 0) -> None:
        """A run starts, or continues after `done` rounds."""

    def round(self, round: Round) -> None:
        """A round has ended. Raise `fedhv.EarlyStop` here to end the run after it."""

    def stop(self) -> None:
        """The run has ended."""

    def runs(self, states: Sequence[Progress]) -> None:
        """The progress of all runs of a study that are computed at the same time."""


class Forwarding(Observer):
    """Forwards all events to another observer; subclasses change some of them."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def message(self, text: str) -> None:
        """Forward the event."""
        self._observer.message(text)

    def start(self, label: str, rounds: int, done: int = 0) -> None:
        """Forward the event."""
        self._observer.start(label, rounds, done)

    def round(self, round: Round) -> None:
        """Forward the event."""
        self._observer.round(round)

    def stop(self) -> None:
        """Forward the event."""
        self._observer.stop()

    def runs(self, states: Sequence[Progress]) -> None:
        """Forward the event."""
        self._observer.runs(states)


class Announcing(Forwarding):
    """Forwards all events, and sends a message before the first one. Without events there is no message."""

    def __init__(self, observer: Observer, text: str) -> None:
        super().__init__(observer)
        self._text = text

    def _announce(self) -> None:
        text, self._text = self._text, ""
        if text:
            self._observer.message(text)

    def message(self, text: str) -> None:
        """Forward the event."""
        self._announce()
        super().message(text)

    def start(self, label: str, rounds: int, done: int = 0) -> None:
        """Forward the event."""
        self._announce()
        super().start(label, rounds, done)

    def runs(self, states: Sequence[Progress]) -> None:
        """Forward the event."""
        self._announce()
        super().runs(states)
