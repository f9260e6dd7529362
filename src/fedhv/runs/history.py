"""The history of a run: `history.jsonl`, one line for every round."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedhv.support.errors import FedHVError, InputError
from fedhv.support.files import cannot_write, write_atomic
from fedhv.support.jsonfile import parse_object

NAME = "history.jsonl"


class History:
    """The rounds of one run: on disk where there is a folder, so that a long run needs no more memory; else in memory.

    Attributes:
        count: How many there are.
        first_evaluated: The first that was evaluated, if any.
        last_evaluated: The last that was.
    """

    def __init__(self, folder: Path | None, keep: int = 0) -> None:
        """Open a history and keep its first `keep` rounds; the file then holds exactly these."""
        self.count = 0
        self.first_evaluated: dict[str, Any] | None = None
        self.last_evaluated: dict[str, Any] | None = None
        self._folder = folder
        self._memory: list[dict[str, Any]] = []
        self._file = None
        if folder is None:
            return
        path = folder / NAME
        records: list[dict[str, Any]] = []
        if keep:
            records = read_history(folder)[:keep]
            if [record["round"] for record in records] != list(range(1, keep + 1)):
                raise InputError(f"{path} does not hold rounds 1 to {keep}. Delete {folder} to start the run anew.")
        write_atomic(path, "".join(_line(record) for record in records))
        for record in records:
            self._note(record)
        try:
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise cannot_write(path, error) from None

    @property
    def records(self) -> list[dict[str, Any]]:
        """All rounds; read anew at every call where they are on disk."""
        if self._folder is None:
            return self._memory
        records = read_history(self._folder)
        if len(records) != self.count:
            raise FedHVError(f"{self._folder / NAME} should hold {self.count} rounds. Found {len(records)}.")
        return records

    def _note(self, record: dict[str, Any]) -> None:
        self.count += 1
        if "evaluation" in record:
            self.first_evaluated = self.first_evaluated or record
            self.last_evaluated = record

    def append(self, record: dict[str, Any]) -> None:
        """Add one round."""
        self._note(record)
        if self._folder is None:
            self._memory.append(record)
        if self._file is not None:
            try:
                self._file.write(_line(record))
                self._file.flush()
            except OSError as error:
                raise cannot_write(self._file.name, error) from None

    def sync(self) -> None:
        """Make sure that the rounds so far survive a loss of power."""
        if self._file is not None:
            try:
                os.fsync(self._file.fileno())
            except OSError as error:
                raise cannot_write(self._file.name, error) from None

    def close(self) -> None:
        """Close the file; what could not be written was reported when it was to be."""
        if self._file is not None:
            with suppress(OSError):
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
            record = parse_object(line)
            if type(record.get("round")) is not int:
                raise ValueError("expected a round number")
        except ValueError as error:
            if number == len(lines):  # no newline behind it: the line was being written
                break
            raise InputError(
                f"{path}, line {number}: not a round of a history ({error}). Delete {folder} to start the run anew."
            ) from None
        records.append(record)
    return records


class Following:
    """A history that somebody else is writing: every look gives the rounds that are new, and reads no more than them.

    Attributes:
        count: The rounds that have been seen.
        last_evaluated: The last of them that was evaluated, if any.
        restarts: How often the history began again: a run that is resumed writes a new file.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.restarts = 0
        self._file: int | None = None
        self._begin()

    def _begin(self) -> None:
        self.count, self._read = 0, 0
        self.last_evaluated: dict[str, Any] | None = None

    def news(self) -> list[dict[str, Any]]:
        """The rounds since the last look; a line that is being written is left for the next one."""
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                if self._file not in (None, status.st_ino) or status.st_size < self._read:
                    self.restarts += 1
                    self._begin()
                self._file = status.st_ino
                file.seek(self._read)
                whole, newline, _ = file.read().rpartition(b"\n")
        except OSError:
            return []
        self._read += len(whole) + len(newline)
        try:
            records = [parse_object(line) for line in whole.splitlines() if line]
        except ValueError:  # somebody else's mistake, which whoever reads the history in earnest will report
            return []
        self.count += len(records)
        self.last_evaluated = next((r for r in reversed(records) if "evaluation" in r), self.last_evaluated)
        return records


def evaluations(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rounds that were evaluated."""
    return [record for record in records if "evaluation" in record]


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False) + "\n"
