"""The history of a run: `history.jsonl`, one line for every round."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedhv.errors import FedHVError, InputError
from fedhv.files import write_atomic

NAME = "history.jsonl"


class History:
    """The rounds of one run, in memory and, where there is a folder, on disk."""

    def __init__(self, folder: Path | None, keep: int = 0) -> None:
        """Open a history and keep its first `keep` rounds; the file then holds exactly these."""
        self.records: list[dict[str, Any]] = []
        self._file = None
        if folder is None:
            return
        path = folder / NAME
        if keep:
            self.records = read_history(folder)[:keep]
            if [record["round"] for record in self.records] != list(range(1, keep + 1)):
                raise InputError(f"{path} does not hold rounds 1 to {keep}. Delete {folder} to start the run anew.")
        write_atomic(path, "".join(_line(record) for record in self.records))
        try:
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise FedHVError(f"{path} could not be written: {error.strerror or error}.") from None

    def append(self, record: dict[str, Any]) -> None:
        """Add one round."""
        self.records.append(record)
        if self._file is not None:
            try:
                self._file.write(_line(record))
                self._file.flush()
            except OSError as error:
                raise FedHVError(f"{self._file.name} could not be written: {error.strerror or error}.") from None

    def sync(self) -> None:
        """Make sure that the rounds so far survive a loss of power."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def read_history(folder: Path) -> list[dict[str, Any]]:
    """The rounds on disk; a last line that a crash cut short is left out."""
    path = folder / NAME
    try:
        lines = path.read_bytes().split(b"\n")  # a line may be cut within a character: each is decoded by itself
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{path} could not be read: {error}.") from None
    records = []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            record = json.loads(line)
            if not isinstance(record, dict) or not isinstance(record.get("round"), int):
                raise ValueError("expected an object with a round number")
        except (ValueError, RecursionError) as error:
            if number == len(lines):  # no newline behind it: the line was being written
                break
            raise InputError(f"{path}, line {number}: not a round of a history ({error}).") from None
        records.append(record)
    return records


def evaluations(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rounds that were evaluated."""
    return [record for record in records if "evaluation" in record]


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False) + "\n"
