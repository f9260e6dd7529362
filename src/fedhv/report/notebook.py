"""Progress in a notebook: one HTML table per run or study that is updated in place. It needs no widgets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from importlib import import_module
from typing import Any

from fedhv.report.progress import describe, run_text
from fedhv.simulation.observer import Observer, Progress
from fedhv.simulation.record import Round

SECONDS_BETWEEN_UPDATES = 0.2
"""A notebook that receives more updates falls behind."""


class NotebookBars(Observer):
    """One line per run with a bar, the rounds, the scores, the weights and the time."""

    def __init__(self) -> None:
        self._lines: dict[str, tuple[int, int, str]] = {}
        self._handle: Any = None
        self._label, self._rounds, self._scores = "", 0, ""
        self._began = self._shown = 0.0

    def message(self, text: str) -> None:
        """Print a line."""
        print(text, flush=True)

    def start(self, label: str, rounds: int, done: int = 0) -> None:
        """Show a new bar."""
        self._label, self._rounds, self._scores = label, rounds, ""
        if done:
            self.message(f"{label}: continuing after round {done} of {rounds}.")
        self._update({label: (done, rounds, "")}, force=True)

    def round(self, round: Round) -> None:
        """Move the bar."""
        if round.evaluation is not None:
            self._scores = round.evaluation.brief
        text = run_text(self._scores, round)
        self._update({self._label: (round.number, self._rounds, text)}, force=round.number == self._rounds)

    def runs(self, states: Sequence[Progress]) -> None:
        """Move the bars of a study's runs."""
        ended = all(done == rounds for _, done, rounds, _ in states)
        self._update({label: (done, rounds, describe(last)) for label, done, rounds, last in states if done}, ended)

    def stop(self) -> None:
        """Later events are of other runs, which get a table of their own."""
        self._show()
        self._lines, self._handle = {}, None

    def _update(self, lines: dict[str, tuple[int, int, str]], force: bool) -> None:
        if not self._lines:
            self._began = time.monotonic()
        self._lines |= lines
        if force or time.monotonic() - self._shown >= SECONDS_BETWEEN_UPDATES:
            self._show()

    def _show(self) -> None:
        if not self._lines:
            return
        views: Any = import_module("IPython.display")  # it has no types
        self._shown = time.monotonic()
        page = views.HTML(self._html())
        if self._handle is None:
            self._handle = views.display(page, display_id=True)
        else:
            self._handle.update(page)

    def _html(self) -> str:
        seconds = int(time.monotonic() - self._began)
        rows = "".join(
            f'<tr><td style="text-align:left">{escape(label)}</td>'
            f'<td><progress value="{done}" max="{rounds}"></progress></td><td>{done}/{rounds}</td>'
            f'<td style="text-align:left">{escape(text)}</td></tr>'
            for label, (done, rounds, text) in self._lines.items()
        )
        return f"<table>{rows}</table><small>{seconds // 60}:{seconds % 60:02} elapsed</small>"
