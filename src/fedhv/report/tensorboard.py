"""TensorBoard logging: follows the histories of a run or a study on disk, under the names that they use.

Runs of a study may be played by other processes; their histories are where all of them can be read. So whatever
TensorBoard shows is what `history.jsonl` says: `weights/clear`, `slack/faint`, `evaluation/mean_accuracy`,
`evaluation/tasks/clear/accuracy`, `seconds`, …
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
    """Writes the new rounds of one history; the first ones wait until an evaluation has named the tasks."""

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

            # What an earlier process logged of these rounds is hidden, not shown twice.
            self._writer = SummaryWriter(str(self.log), purge_step=round.number)
        for name, value in round.scalars(self._tasks):
            self._writer.add_scalar(name, value, round.number)


class TensorBoard(Forwarding):
    """Forwards all events and writes `tensorboard/` in the folder of a run or a study.

    A log that cannot be written is said once and given up: the histories hold all of it, and no run should end for it.
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
        """Log what is new, not more often than anyone looks."""
        super().round(round)
        self._look()

    def runs(self, states: Sequence[Progress]) -> None:
        """Log what is new in the runs of a study."""
        super().runs(states)
        self._look()

    def stop(self) -> None:
        """Log the rest."""
        super().stop()
        self._look(now=True)
        if self._followers and not self._said and not self._given_up:
            self._said = True
            self.message(f"Look at it with: tensorboard --logdir {self._folder / FOLDER}")

    def _look(self, now: bool = False) -> None:
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
                f"{where} could not be written: {error.strerror or error}. The run goes on without TensorBoard."
            )

    def _update(self) -> None:
        for history in sorted(self._folder.rglob(NAME)):
            if history not in self._followers:
                place = history.parent.relative_to(self._folder)
                run = place.as_posix() if place.parts else self._folder.resolve().name
                self._followers[history] = _Follower(Following(history.parent), self._folder / FOLDER / run)
            self._followers[history].update()
