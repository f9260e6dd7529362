"""Progress on the terminal: a live bar where there is one, a line now and then where there is not."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import progress as bars
from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedhv.runs.folder import holds_run
from fedhv.runs.study import AnnouncingStudy, Progress, StudyObserver
from fedhv.simulation.rounds import Round
from fedhv.support.terminal import say_line

SECONDS_BETWEEN_LINES = 10.0
"""Where output goes to a file, progress is a line every so often."""
NAMED = 4
"""So many runs that go on at the same time are named in such a line; the others are counted."""


WIDE = 100
"""So many columns have room for a bar beside what matters: rounds, accuracies, weights and the time left."""


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
                *([BarColumn(bar_width=20)] if self._console.width >= WIDE else []),
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
    """For logs: what is said, a line for every run that ends, and a line every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._label, self._rounds, self._accuracy = "", 0, ""
        self._ended: set[str] = set()
        self._last = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line."""
        say_line(self._console, text)

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

    def stop(self) -> None:
        """What follows are other runs, perhaps with the same labels."""
        self._ended = set()

    def runs(self, states: Sequence[Progress]) -> None:
        """Say which runs of a study have ended, each once, and from time to time how far the others are."""
        ended = {label for label, done, rounds, _ in states if done == rounds}
        for label, _, rounds, last in states:
            if label in ended - self._ended:
                self.say(_line(f"{label}: {rounds} rounds done", last))
        self._ended = ended
        going = [state for state in states if 0 < state[1] < state[2]]
        if not going or not self._due():
            return
        if len(going) == 1:
            label, done, rounds, last = going[0]
            self.say(_line(f"{label}: round {done}/{rounds}", last))
            return
        named = [f"{label} {done}/{rounds}{_incidents_of(last)}" for label, done, rounds, last in going[:NAMED]]
        others = f" and {len(going) - NAMED} more" if len(going) > NAMED else ""
        self.say(f"{len(ended)} of {len(states)} runs done; {', '.join(named)}{others}")

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


def starting_anew(watch: StudyObserver, folder: Path, resume: bool) -> StudyObserver:
    """Before anything else say that there is nothing to resume, so that a mistyped folder is seen.

    It is no error: a run that was cut before it wrote anything is started by the command that resumes it.
    """
    anew = resume and not holds_run(folder)
    return AnnouncingStudy(watch, f"{folder} holds no run to resume: starting it from the first round." if anew else "")


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


def _incidents_of(record: dict[str, Any] | None) -> str:
    """The same of a round in the history."""
    if record is None:
        return ""
    return incidents(
        len(record.get("refused", ())), record.get("attempts", 1), record.get("watch", ()), "raised" in record
    )


def _line(text: str, record: dict[str, Any] | None) -> str:
    return f"{text}, {_describe(record)}" if record is not None else text  # nothing before the first evaluation


def _describe(record: dict[str, Any] | None) -> str:
    if record is None:
        return ""
    evaluation = record["evaluation"]
    text = _accuracy(evaluation["mean_accuracy"], evaluation["worst_accuracy"])
    return f"{text}  w {_weights(record['weights'])}{_incidents_of(record)}"
