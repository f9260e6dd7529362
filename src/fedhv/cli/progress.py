"""Progress on the terminal: a live bar where there is one, a line now and then where there is not."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich import progress as bars
from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedhv.simulation import Round
from fedhv.study import Progress, StudyObserver

SECONDS_BETWEEN_LINES = 10.0
"""Where output goes to a file, progress is a line every so often."""


class Bars(StudyObserver):
    """One bar for every run that is going on, with accuracies, weights and the time left."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: bars.Progress | None = None
        self._bars: dict[str, TaskID] = {}
        self._label = ""
        self._rounds = 0
        self._accuracy = ""

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self._console.print(text, markup=False, highlight=False)

    def start(self, label: str, rounds: int, done: int = 0) -> None:
        """Open a bar."""
        self._label, self._rounds, self._accuracy = label, rounds, ""
        if done:
            self.say(f"{label}: going on after round {done} of {rounds}.")
        self._update(label, done, rounds, "")

    def round(self, round: Round) -> None:
        """Move the bar."""
        if round.evaluation is not None:
            self._accuracy = _accuracy(round.evaluation.mean_accuracy, round.evaluation.worst_accuracy)
        text = f"{self._accuracy}  w {_weights(round.weights)}{_incidents(round)}"
        self._update(self._label, round.number, self._rounds, text)

    def stop(self) -> None:
        """Close the bars."""
        if self._progress is not None:
            self._progress.stop()
        self._progress, self._bars = None, {}

    def runs(self, states: Sequence[Progress]) -> None:
        """Move the bars of a study's runs."""
        for label, done, rounds, last in states:
            if done:
                self._update(label, done, rounds, _describe(last))
        if all(done == rounds for _, done, rounds, _ in states):
            self.stop()

    def _update(self, label: str, done: int, rounds: int, text: str) -> None:
        if self._progress is None:
            self._progress = bars.Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=20),
                TextColumn("{task.completed:.0f}/{task.total:.0f}"),
                TextColumn("{task.fields[text]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self._console,
                refresh_per_second=5,
            )
            self._progress.start()
        if label not in self._bars:
            self._bars[label] = self._progress.add_task(label, total=rounds, completed=done, text=text)
        self._progress.update(self._bars[label], completed=done, text=text)


class Lines(StudyObserver):
    """For logs: what is said, and a line every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._label, self._rounds, self._accuracy = "", 0, ""
        self._last = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def start(self, label: str, rounds: int, done: int = 0) -> None:
        """Say what starts."""
        self._label, self._rounds, self._accuracy = label, rounds, ""
        after = f", going on after round {done}" if done else ""
        self.say(f"{label}: {rounds} rounds{after}")

    def round(self, round: Round) -> None:
        """Say how far it is, from time to time."""
        if round.evaluation is not None:
            self._accuracy = _accuracy(round.evaluation.mean_accuracy, round.evaluation.worst_accuracy)
        if self._due() or round.number == self._rounds:
            seen = f"{self._accuracy}, " if self._accuracy else ""  # nothing before the first evaluation
            text = f"{seen}w {_weights(round.weights)}{_incidents(round)}"
            self.say(f"{self._label}: round {round.number}/{self._rounds}, {text}")

    def runs(self, states: Sequence[Progress]) -> None:
        """Say how far the runs of a study are, from time to time."""
        going = [f"{label} {done}/{rounds} {_describe(last)}".rstrip() for label, done, rounds, last in states if done]
        if going and (self._due() or all(done == rounds for _, done, rounds, _ in states)):
            self.say("; ".join(going))

    def _due(self) -> bool:
        if time.monotonic() - self._last < SECONDS_BETWEEN_LINES:
            return False
        self._last = time.monotonic()
        return True


def observer(console: Console, quiet: bool) -> StudyObserver:
    """What suits the terminal."""
    if quiet:
        return StudyObserver()
    return Bars(console) if console.is_terminal else Lines(console)


def _accuracy(mean: float, worst: float) -> str:
    return f"mean {mean:.1f} % worst {worst:.1f} %"


def _weights(weights: Sequence[float]) -> str:
    shown = " ".join(f"{weight:.2f}" for weight in weights[:5])
    return shown + (" …" if len(weights) > 5 else "")


def _incidents(round: Round) -> str:
    """Who was left out of a round, and what the reference watch saw in it; mostly nothing."""
    record = round.state.record
    return incidents(len(round.refused), round.attempts, record.get("watch", ()), "raised" in record)


def incidents(refused: int, attempts: int, watch: Sequence[Mapping[str, Any]], raised: bool) -> str:
    """The same as a few words."""
    text = f"  {refused} left out" if refused else ""
    text += f"  attempt {attempts}" if attempts > 1 else ""
    if watch:
        worst = min(watch, key=lambda breach: float(breach["slack"]))
        text += f"  ! {worst['event']}, slack {worst['slack']:.3g}{', reference raised' if raised else ''}"
    return text


def _describe(record: dict[str, Any] | None) -> str:
    if record is None:
        return ""
    evaluation = record["evaluation"]
    text = _accuracy(evaluation["mean_accuracy"], evaluation["worst_accuracy"])
    seen = incidents(
        len(record.get("refused", ())), record.get("attempts", 1), record.get("watch", ()), "raised" in record
    )
    return f"{text}  w {_weights(record['weights'])}{seen}"
