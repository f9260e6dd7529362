"""Progress: live bars on a terminal, occasional lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich import progress as bars
from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedhv.protocol.evaluation import Evaluation
from fedhv.runs.folder import holds_run
from fedhv.simulation.observer import Announcing, Forwarding, Observer, Progress
from fedhv.simulation.record import Round
from fedhv.support.files import make_folder
from fedhv.support.terminal import print_line

SECONDS_BETWEEN_LINES = 10.0
"""Seconds between progress lines if the output is a file."""
NAMED = 4
"""The largest number of runs that a progress line names; the others are counted."""


WIDE, NARROW = 110, 72
"""Terminal widths: from `WIDE` on there is space for weights and elapsed time, below `NARROW` none for accuracies."""
OTHER_LINES = 4
"""The lines of a terminal that bars of runs leave to the overall bar, the prompt and messages."""


class RunBars(Observer):
    """One bar per active run, with accuracies, weights and the time left; for a study an overall bar above them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: bars.Progress | None = None
        self._bars: dict[str, TaskID] = {}
        self._overall: TaskID | None = None
        self._ended: set[str] | None = None
        self._label = ""
        self._rounds = 0
        self._accuracy = ""

    def message(self, text: str) -> None:
        """Print a line above the bars."""
        self._console.print(text, markup=False, highlight=False)

    def start(self, label: str, rounds: int, done: int = 0) -> None:
        """Open a bar."""
        self._label, self._rounds, self._accuracy = label, rounds, ""
        if done:
            self.message(f"{label}: continuing after round {done} of {rounds}.")
        self._update(label, done, rounds, "")

    def round(self, round: Round) -> None:
        """Move the bar."""
        if round.evaluation is not None:
            self._accuracy = _accuracy(round.evaluation)
        self._update(self._label, round.number, self._rounds, self._text(self._accuracy, round))

    def stop(self) -> None:
        """Close the bars."""
        if self._progress is not None:
            self._progress.stop()
        self._progress, self._bars, self._overall, self._ended = None, {}, None, None

    def runs(self, states: Sequence[Progress]) -> None:
        """Move the bars of a study's runs: all together, and those that have begun and not ended.

        A run that ends has a line above the bars. Nothing is shown of a study in which nothing is left to compute.
        """
        ended = {label for label, done, rounds, _ in states if done >= rounds}
        if len(ended) == len(states) and self._progress is None:
            return
        for label, _, rounds, last in states:
            if self._ended is not None and label in ended - self._ended:
                self.message(_line(f"{label}: {rounds} rounds done", last))
        self._ended = ended
        active = [state for state in states if 0 < state[1] < state[2]]
        shown = active[: max(1, self._console.height - OTHER_LINES)]
        hidden = f"{len(active) - len(shown)} more active" if len(active) > len(shown) else ""
        for label in self._bars.keys() - {state[0] for state in shown}:  # it has ended, or failed
            self._open().remove_task(self._bars.pop(label))
        self._sum_up(len(ended), states, hidden)
        for label, done, rounds, last in shown:
            text = "" if last is None or last.evaluation is None else self._text(_accuracy(last.evaluation), last)
            self._update(label, done, rounds, text)
        if len(ended) == len(states):
            self.stop()

    def _sum_up(self, ended: int, states: Sequence[Progress], hidden: str) -> None:
        """Move the overall bar."""
        progress = self._open()
        done, rounds = sum(state[1] for state in states), sum(state[2] for state in states)
        name = f"{ended} of {len(states)} runs"
        if self._overall is None:
            self._overall = progress.add_task(name, total=rounds, completed=done, text=hidden)
        progress.update(self._overall, description=name, total=rounds, completed=done, text=hidden)

    def _text(self, accuracy: str, round: Round) -> str:
        """What is beside a bar: as much as the terminal has space for."""
        if self._console.width < NARROW:
            return ""
        weights = f"  w {_weights(round.weights)}" if self._console.width >= WIDE else ""
        return f"{accuracy}{weights}{incidents(round)}"

    def _open(self) -> bars.Progress:
        if self._progress is None:
            width = self._console.width
            self._progress = bars.Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=20 if width >= WIDE else 10),
                TextColumn("{task.completed:.0f}/{task.total:.0f}"),
                *([TextColumn("{task.fields[text]}")] if width >= NARROW else []),
                *([TimeElapsedColumn()] if width >= WIDE else []),
                TimeRemainingColumn(),
                console=self._console,
                refresh_per_second=5,
            )
            self._progress.start()
        return self._progress

    def _update(self, label: str, done: int, rounds: int, text: str) -> None:
        progress = self._open()
        if label not in self._bars:
            self._bars[label] = progress.add_task(label, total=rounds, completed=done, text=text)
        progress.update(self._bars[label], completed=done, text=text)


class Lines(Observer):
    """For logs: messages, a line for every run that ends, and a line every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._label, self._rounds, self._accuracy = "", 0, ""
        self._ended: set[str] = set()
        self._last = time.monotonic()

    def message(self, text: str) -> None:
        """Print a line."""
        print_line(self._console, text)

    def start(self, label: str, rounds: int, done: int = 0) -> None:
        """Print a line about the run that starts."""
        self._label, self._rounds, self._accuracy = label, rounds, ""
        after = f", continuing after round {done}" if done else ""
        self.message(f"{label}: {rounds} rounds{after}")

    def round(self, round: Round) -> None:
        """Print the progress at intervals."""
        if round.evaluation is not None:
            self._accuracy = _accuracy(round.evaluation)
        if self._due() or round.number == self._rounds:
            seen = f"{self._accuracy}, " if self._accuracy else ""  # nothing before the first evaluation
            text = f"{seen}w {_weights(round.weights)}{incidents(round)}"
            self.message(f"{self._label}: round {round.number}/{self._rounds}, {text}")

    def stop(self) -> None:
        """Forget the ended runs. Later runs may have the same labels."""
        self._ended = set()

    def runs(self, states: Sequence[Progress]) -> None:
        """Print every run of a study that has ended, once, and at intervals the progress of the others."""
        ended = {label for label, done, rounds, _ in states if done == rounds}
        for label, _, rounds, last in states:
            if label in ended - self._ended:
                self.message(_line(f"{label}: {rounds} rounds done", last))
        self._ended = ended
        going = [state for state in states if 0 < state[1] < state[2]]
        if not going or not self._due():
            return
        if len(going) == 1:
            label, done, rounds, last = going[0]
            self.message(_line(f"{label}: round {done}/{rounds}", last))
            return
        named = [f"{label} {done}/{rounds}{incidents(last)}" for label, done, rounds, last in going[:NAMED]]
        others = f" and {len(going) - NAMED} more" if len(going) > NAMED else ""
        self.message(f"{len(ended)} of {len(states)} runs done; {', '.join(named)}{others}")

    def _due(self) -> bool:
        if time.monotonic() - self._last < SECONDS_BETWEEN_LINES:
            return False
        self._last = time.monotonic()
        return True


def observer(console: Console, quiet: bool) -> Observer:
    """For a command: bars on a terminal, lines in a log."""
    if quiet:
        return Observer()
    return RunBars(console) if console.is_terminal else Lines(console)


def shown(quiet: bool = False) -> Observer:
    """For calls from Python: bars in a terminal and in a notebook, nothing elsewhere."""
    output = Console()
    if quiet:
        return Observer()
    if output.is_jupyter:
        from fedhv.report.notebook import NotebookBars

        return NotebookBars()
    return RunBars(Console(stderr=True)) if sys.stdout is not None and sys.stdout.isatty() else Observer()


def warn_without_run(watch: Observer, folder: Path, resume: bool) -> Observer:
    """Show a message if there is no run to resume, so that a mistyped folder is noticed.

    It is not an error: `--resume` also starts a run that was interrupted before it wrote anything.
    """
    missing = resume and not holds_run(folder)
    return Announcing(watch, f"{folder} has no run to resume. Starting from the first round." if missing else "")


class FolderAtStart(Forwarding):
    """Creates a folder at the first message: bad input leaves none, and a bad path is found before the work."""

    def __init__(self, observer: Observer, folder: Path) -> None:
        super().__init__(observer)
        self._folder = folder

    def message(self, text: str) -> None:
        """Forward the message. The first message is sent after all checks."""
        make_folder(self._folder)
        super().message(text)


def _accuracy(evaluation: Evaluation) -> str:
    return evaluation.brief


def _weights(weights: Sequence[float]) -> str:
    shown = " ".join(f"{weight:.2f}" for weight in weights[:5])
    return shown + (" …" if len(weights) > 5 else "")


def incidents(round: Round | None) -> str:
    """Refused clients, repeated attempts and events of the watch in a round; empty if there are none."""
    if round is None:
        return ""
    text = f"  {len(round.refused)} left out" if round.refused else ""
    text += f"  attempt {round.attempts}" if round.attempts > 1 else ""
    if round.watch:
        worst = min(round.watch, key=lambda breach: breach.slack)
        raised = ", reference raised" if round.raised is not None else ""
        text += f"  ! {worst.event}, slack {worst.slack:.3g}{raised}"
    return text


def _line(text: str, round: Round | None) -> str:
    return f"{text}, {describe(round)}" if round is not None else text  # nothing before the first evaluation


def describe(round: Round | None) -> str:
    """Scores, weights and incidents of an evaluated round; empty before the first evaluation."""
    if round is None or round.evaluation is None:
        return ""
    return run_text(_accuracy(round.evaluation), round)


def run_text(scores: str, round: Round) -> str:
    """The last scores of a run with the weights and incidents of a round."""
    return f"{scores}  w {_weights(round.weights)}{incidents(round)}"
