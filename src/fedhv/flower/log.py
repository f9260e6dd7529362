"""Progress as lines of Flower's log."""

from __future__ import annotations

from logging import INFO

from flwr.common.logger import log

from fedhv.simulation.observer import Observer
from fedhv.simulation.record import Round


class Log(Observer):
    """Progress as lines of Flower's log."""

    def __init__(self) -> None:
        self._label, self._rounds = "", 0

    def message(self, text: str) -> None:
        """Log a message for the user."""
        log(INFO, "%s", text)

    def start(self, label: str, rounds: int, done: int = 0) -> None:
        """Log the start of a run, or of its continuation."""
        self._label, self._rounds = label, rounds
        self.message(f"{label}: {rounds} rounds{f', continuing after round {done}' if done else ''}")

    def round(self, round: Round) -> None:
        """Log a finished round."""
        weights = " ".join(f"{weight:.3f}" for weight in round.weights)
        text = f"{self._label}: round {round.number}/{self._rounds}, w {weights}"
        if round.evaluation is not None:
            text += f", mean {round.evaluation.mean_accuracy:.1f} %, worst {round.evaluation.worst_accuracy:.1f} %"
        for refusal in round.refused:
            text += f"; left out client {refusal.client}: {refusal.reason}"
        self.message(text)
