"""When the checkpoints of a run are written, and which of them are kept."""

from __future__ import annotations

import time
from pathlib import Path

from fedhv.runs.checkpoint import Checkpoint, keep_checkpoint, kept_rounds, save_checkpoint
from fedhv.runs.history import History

SECONDS_BETWEEN_CHECKPOINTS = 2.0
"""The shortest time between checkpoints. A crash loses the rounds since the last one."""

SHARE_OF_CHECKPOINTS = 0.02
"""The largest fraction of time for checkpoints. Large models and many runs are saved less often. Ctrl-C saves."""

PARTS, NEWEST = 10, 3
"""Unless `record.checkpoints` says otherwise, a checkpoint of every tenth of the rounds is kept, the newest three."""

MOST_SECONDS_BETWEEN_CHECKPOINTS = 600.0
"""The longest time between checkpoints, even if saving is slow, as on network disks."""


class Saving:
    """The checkpoints of one run.

    Args:
        folder: The run's folder; nothing is written without one.
        done: How many rounds are done, and saved, at the start.
        rounds: T.
        every: Keep a checkpoint every this many rounds (`record.checkpoints`).
        together: How many runs share the time of this process.
    """

    def __init__(self, folder: Path | None, done: int, rounds: int, every: int | None, together: int = 1) -> None:
        self.folder, self.saved = folder, done
        self._rounds, self._every = rounds, every
        self._share = SHARE_OF_CHECKPOINTS / together
        self._saved_at = time.monotonic()
        self._kept = max(kept_rounds(folder), default=0) if folder is not None else 0
        self._pause = SECONDS_BETWEEN_CHECKPOINTS

    def due(self, done: int) -> bool:
        """Whether a checkpoint is to be written after this round."""
        return self._asked(done) or time.monotonic() - self._saved_at > self._pause

    def _asked(self, done: int) -> bool:
        return bool(self._every) and done % (self._every or 1) == 0

    def save(self, checkpoint: Checkpoint, history: History) -> None:
        """Write a checkpoint, if there is anything new."""
        if self.folder is not None and checkpoint.round > self.saved:
            began = time.monotonic()
            history.sync()  # a checkpoint is worth nothing without the rounds before it
            save_checkpoint(self.folder, checkpoint)
            affordable = min((time.monotonic() - began) / self._share, MOST_SECONDS_BETWEEN_CHECKPOINTS)
            self._pause = max(SECONDS_BETWEEN_CHECKPOINTS, affordable)
        self.saved, self._saved_at = checkpoint.round, time.monotonic()

    def keep(self, done: int, ended: bool) -> None:
        """Keep the checkpoint of this round, if it was written and is one of those to keep."""
        if self.folder is None or self.saved != done:
            return
        if self._asked(done):
            keep_checkpoint(self.folder, done)
        elif self._every is None and self._kept + max(1, self._rounds // PARTS) <= done and not ended:
            keep_checkpoint(self.folder, done, NEWEST)
            self._kept = done
