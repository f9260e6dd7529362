"""The state of a ServerApp for the process that started it: running, ended or killed.

It holds a lock on `running` while it lives: locks go with their process, however that ends. What it came to stands in
`outcome.json`.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedhv.support.errors import FedHVError
from fedhv.support.files import write_atomic

RUNNING, OUTCOME, SAID = "running", "outcome.json", "said"


@contextmanager
def reporting(folder: Path) -> Iterator[None]:
    """The server's side: hold the lock, and write down how it ended."""
    # It is locked before it gets its name: if it exists and is unlocked, the server has ended.
    unnamed = folder / f".{RUNNING}-{os.getpid()}"
    with unnamed.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        os.replace(unnamed, folder / RUNNING)
        try:
            yield
        except FedHVError as error:
            write_atomic(folder / OUTCOME, json.dumps({"error": str(error), "code": error.exit_code}))
            raise
        except BaseException as error:
            write_atomic(folder / OUTCOME, json.dumps({"error": f"{type(error).__name__}: {error}", "code": 1}))
            raise
        write_atomic(folder / OUTCOME, json.dumps({"code": 0}))


def tell(folder: Path, text: str) -> None:
    """The server's side: a line for the user."""
    with (folder / SAID).open("a", encoding="utf-8") as file:
        file.write(" ".join(text.split()) + "\n")


class Control:
    """The other side: watches one submission of the app."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self._read = 0

    def outcome(self) -> dict[str, Any] | None:
        """How the server ended; None while it has not."""
        try:
            found: dict[str, Any] = json.loads((self.folder / OUTCOME).read_text())
        except FileNotFoundError:
            return None
        return found

    def said(self) -> list[str]:
        """The lines for the user that are new since the last call."""
        try:
            lines = (self.folder / SAID).read_text(encoding="utf-8").split("\n")[:-1]
        except FileNotFoundError:
            return []
        new, self._read = lines[self._read :], len(lines)
        return new

    def started(self) -> bool:
        """Whether the server has ever run."""
        return (self.folder / RUNNING).exists()

    def died(self) -> bool:
        """Whether the server ran and is gone without a word."""
        if not self.started():
            return False
        with (self.folder / RUNNING).open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return False
        return self.outcome() is None
