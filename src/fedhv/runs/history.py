"""The history of a run: `history.jsonl`, one line for every round."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fedhv.simulation.record import Round
from fedhv.support.errors import FedHVError, InputError
from fedhv.support.files import cannot_write, write_atomic
from fedhv.support.jsonfile import parse_object

NAME = "history.jsonl"


class History:
    """The rounds of one run: on disk if there is a folder, so that a long run needs no more memory; else in memory.

    Attributes:
        count: The number of rounds.
        first_evaluated: The first that was evaluated, if any.
        last_evaluated: The last that was.
        largest_step: The norm of the longest step; 0 in histories that do not have it.
    """

    def __init__(self, folder: Path | None, keep: int = 0) -> None:
        """Open a history and keep its first `keep` rounds; the file then has exactly these lines."""
        self.count = 0
        self.first_evaluated: Round | None = None
        self.last_evaluated: Round | None = None
        self.largest_step = 0.0
        self._folder = folder
        self._memory: list[Round] = []
        self._file = None
        if folder is None:
            return
        path = folder / NAME
        kept: list[tuple[bytes, Round]] = []
        if keep:
            kept = list(_strict(folder))[:keep]
            if [round.number for _, round in kept] != list(range(1, keep + 1)):
                raise InputError(f"{path} does not have rounds 1 to {keep}. Delete {folder} to start the run again.")
        write_atomic(path, b"".join(line + b"\n" for line, _ in kept))
        for _, round in kept:
            self._note(round)
        try:
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise cannot_write(path, error) from None

    @property
    def rounds(self) -> list[Round]:
        """All rounds. If they are on disk, every call reads the file."""
        if self._folder is None:
            return self._memory
        rounds = read_history(self._folder)
        if len(rounds) != self.count:
            raise FedHVError(f"{self._folder / NAME} should hold {self.count} rounds. Found {len(rounds)}.")
        return rounds

    def _note(self, round: Round) -> None:
        self.count += 1
        self.largest_step = max(self.largest_step, round.step_norm or 0.0)
        if round.evaluation is not None:
            self.first_evaluated = self.first_evaluated or round
            self.last_evaluated = round

    def append(self, round: Round) -> None:
        """Add one round."""
        self._note(round)
        if self._folder is None:
            self._memory.append(round)
        if self._file is not None:
            try:
                self._file.write(_line(round))
                self._file.flush()
            except OSError as error:
                raise cannot_write(self._file.name, error) from None

    def sync(self) -> None:
        """Flush the rounds to disk, so that they survive a power failure."""
        if self._file is not None:
            try:
                os.fsync(self._file.fileno())
            except OSError as error:
                raise cannot_write(self._file.name, error) from None

    def close(self) -> None:
        """Close the file. Write errors were reported before."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()


def read_history(folder: Path) -> list[Round]:
    """The rounds on disk; a last line that a crash cut short is left out."""
    return [round for _, round in _strict(folder)]


def _strict(folder: Path) -> Iterator[tuple[bytes, Round]]:
    """Every line of the file with its round. A line that is not a round is an error."""
    path = folder / NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"{path} could not be read: {error}.") from None
    for number, line, found in lines(content):
        if isinstance(found, Round):
            yield line, found
        elif not found.cut:
            raise InputError(
                f"{path}, line {number}: not a round of a history ({found}). Delete {folder} to start the run again."
            )


class NotARound(ValueError):
    """A line of a history that is not a round; `cut` if it is an incomplete last line."""

    cut = False


def lines(content: bytes) -> Iterator[tuple[int, bytes, Round | NotARound]]:
    """(number, text, round or error) of every line of a history."""
    parts = content.split(b"\n")  # a line may end within a character: each is decoded alone
    for number, line in enumerate(parts, start=1):
        if not line.strip():
            continue
        found: Round | NotARound
        try:
            found = Round.read(parse_object(line))
        except ValueError as error:
            found = NotARound(str(error))
            found.cut = number == len(parts)  # no newline behind it: the line was being written
        yield number, line, found


class Following:
    """A history that another process is writing. Every read returns the new rounds only.

    Attributes:
        count: The number of rounds that have been read.
        last_evaluated: The last of them that was evaluated, if any.
        restarts: How often the history was replaced: a resumed run writes a new file.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.restarts = 0
        self._file: int | None = None
        self._begin()

    def _begin(self) -> None:
        self.count, self._read = 0, 0
        self.last_evaluated: Round | None = None

    def news(self) -> list[Round]:
        """The rounds since the last read. An incomplete line is read next time."""
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
        found = [each for _, _, each in lines(whole)]
        rounds = [each for each in found if isinstance(each, Round)]
        if len(rounds) < len(found):  # a damaged line; the other readers report it
            return []
        self.count += len(rounds)
        self.last_evaluated = next((each for each in reversed(rounds) if each.evaluation), self.last_evaluated)
        return rounds


def _line(round: Round) -> str:
    return json.dumps(round.as_dict(), separators=(",", ":"), ensure_ascii=False) + "\n"
