"""Whoever watches a run: a progress bar, a log, nobody."""

from __future__ import annotations

from fedhv.simulation.rounds import Round


class Observer:
    """Is told what happens; this one keeps silent."""

    def say(self, text: str) -> None:
        """Something that the user should know."""

    def start(self, label: str, rounds: int, done: int = 0) -> None:
        """A run starts, or goes on after `done` rounds."""

    def round(self, round: Round) -> None:
        """A round is over."""

    def stop(self) -> None:
        """The run is over."""


class Forwarding(Observer):
    """Passes on what it is told; others change some of it on the way."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def say(self, text: str) -> None:
        """Pass it on."""
        self._observer.say(text)

    def start(self, label: str, rounds: int, done: int = 0) -> None:
        """Pass it on."""
        self._observer.start(label, rounds, done)

    def round(self, round: Round) -> None:
        """Pass it on."""
        self._observer.round(round)

    def stop(self) -> None:
        """Pass it on."""
        self._observer.stop()


class Announcing(Forwarding):
    """Passes on what it is told, and before the first of it says something: where nothing happens, nothing is said."""

    def __init__(self, observer: Observer, text: str) -> None:
        super().__init__(observer)
        self._text = text

    def _announce(self) -> None:
        text, self._text = self._text, ""
        if text:
            self._observer.say(text)

    def say(self, text: str) -> None:
        """Pass it on."""
        self._announce()
        super().say(text)

    def start(self, label: str, rounds: int, done: int = 0) -> None:
        """Pass it on."""
        self._announce()
        super().start(label, rounds, done)
