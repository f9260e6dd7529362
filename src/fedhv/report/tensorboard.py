"""TensorBoard logging: reads the histories of a run or a study on disk and logs their new rounds.

Runs of a study may be computed by other processes, so the values come from the histories on disk. Tags are the names
in `history.jsonl`: `weights/clear`, `slack/faint`, `evaluation/mean_accuracy`, `evaluation/tasks/clear/accuracy`,
`seconds`, …
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedhv.runs.history import NAME, Following
from fedhv.simulation.observer import Forwarding, Observer, Progress
from fedhv.simulation.record import Round
from fedhv.support.errors import InputError

FOLDER = "tensorboard"
SECONDS_BETWEEN_LOOKS = 0.5


@dataclass
class _Follower:
    """Writes the new rounds of one history. Rounds before the first evaluation wait for it: it has the tasks' names."""

    history: Following
    log: Path
    _restarts: int = 0
    _waiting: list[Round] = field(default_factory=list)
    _tasks: list[str] = field(default_factory=list)
    _writer: Any = None

    def update(self) -> None:
        news = self.history.news()
        if self.history.restarts > self._restarts:  # the run was resumed from a checkpoint
            self._restarts, self._waiting = self.history.restarts, []
            self.close()
        evaluated = next((round.evaluation for round in news if round.evaluation is not None), None)
        if not self._tasks and evaluated is not None:
            self._tasks = [task.name for task in evaluated.tasks]
        self._waiting += news
        if self._tasks:
            for round in self._waiting:
                self._write(round)
            self._waiting = []

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    def _write(self, round: Round) -> None:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # Hide these rounds in the logs of an earlier process, so that they are not shown twice.
            self._writer = SummaryWriter(str(self.log), purge_step=round.number)
        for name, value in round.scalars(self._tasks):
            self._writer.add_scalar(name, value, round.number)


class TensorBoard(Forwarding):
    """Forwards all events and writes `tensorboard/` in the folder of a run or a study.

    If the log cannot be written, one message is shown and logging ends. The run continues, and the histories have all
    values.
    """

    def __init__(self, folder: Path, observer: Observer) -> None:
        try:
            import torch.utils.tensorboard  # noqa: F401
        except ImportError:
            raise InputError("--tensorboard needs TensorBoard: pip install 'fedhv[tensorboard]'.") from None
        super().__init__(observer)
        self._folder = folder
        self._followers: dict[Path, _Follower] = {}
        self._looked = 0.0
        self._said = False
        self._given_up = False

    def round(self, round: Round) -> None:
        """Log new rounds, at most once per interval."""
        super().round(round)
        self._log_new()

    def runs(self, states: Sequence[Progress]) -> None:
        """Log the new rounds of a study's runs."""
        super().runs(states)
        self._log_new()

    def stop(self) -> None:
        """Log the rest."""
        super().stop()
        self._log_new(now=True)
        if self._followers and not self._said and not self._given_up:
            self._said = True
            self.message(f"Open the log with: tensorboard --logdir {self._folder / FOLDER}")

    def _log_new(self, now: bool = False) -> None:
        if self._given_up or (not now and time.monotonic() - self._looked < SECONDS_BETWEEN_LOOKS):
            return
        self._looked = time.monotonic()
        try:
            self._update()
            if now:
                for follower in self._followers.values():
                    follower.flush()
        except OSError as error:
            self._given_up = True
            where = self._folder / FOLDER
            self.message(
                f"{where} could not be written: {error.strerror or error}. The run continues without TensorBoard."
            )

    def _update(self) -> None:
        for history in sorted(self._folder.rglob(NAME)):
            if history not in self._followers:
                place = history.parent.relative_to(self._folder)
                run = place.as_posix() if place.parts else self._folder.resolve().name
                self._followers[history] = _Follower(Following(history.parent), self._folder / FOLDER / run)
            self._followers[history].update()
