"""The state of a ServerApp for the process that started it: running, ended or killed.

The ServerApp holds the lock `running.lock`. The system releases the lock when the process ends for any reason. The
result is in `outcome.json`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fedhv.support.errors import FedHVError
from fedhv.support.files import write_atomic

RUNNING, LOCK, OUTCOME, MESSAGES = "running", "running.lock", "outcome.json", "messages"


@contextmanager
def reporting(folder: Path) -> Iterator[None]:
    """On the server: hold the lock, and write the outcome."""
    # `running` is made under the lock: if it exists and the lock is free, the server has ended.
    with FileLock(folder / LOCK):
        (folder / RUNNING).touch()
        try:
            yield
        except FedHVError as error:
            write_atomic(folder / OUTCOME, json.dumps({"error": str(error), "code": error.exit_code}))
            raise
        except BaseException as error:
            write_atomic(folder / OUTCOME, json.dumps({"error": f"{type(error).__name__}: {error}", "code": 1}))
            raise
        write_atomic(folder / OUTCOME, json.dumps({"code": 0}))


def send_message(folder: Path, text: str) -> None:
    """On the server: write a message for the user."""
    with (folder / MESSAGES).open("a", encoding="utf-8") as file:
        file.write(" ".join(text.split()) + "\n")


class Control:
    """In the starting process: reads the state of one submission of the app."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self._read = 0

    def outcome(self) -> dict[str, Any] | None:
        """The outcome of the server; None while it runs."""
        try:
            found: dict[str, Any] = json.loads((self.folder / OUTCOME).read_text())
        except FileNotFoundError:
            return None
        return found

    def messages(self) -> list[str]:
        """The messages since the last call."""
        try:
            lines = (self.folder / MESSAGES).read_text(encoding="utf-8").split("\n")[:-1]
        except FileNotFoundError:
            return []
        new, self._read = lines[self._read :], len(lines)
        return new

    def started(self) -> bool:
        """Whether the server has started."""
        return (self.folder / RUNNING).exists()

    def died(self) -> bool:
        """Whether the server has ended without an outcome."""
        if not self.started():
            return False
        try:
            with FileLock(self.folder / LOCK, blocking=False):
                pass
        except Timeout:
            return False
        return self.outcome() is None
