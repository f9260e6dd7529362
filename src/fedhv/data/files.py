"""Reading and writing of files, with one-line errors that name the file."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from fedhv.support.errors import InputError
from fedhv.support.files import replacing

BLOCK = 1 << 20
"""The number of bytes that are read at once."""


def failed(path: Path, doing: str, error: OSError) -> InputError:
    """An operating system error as a user's error."""
    if isinstance(error, PermissionError):
        reason = "permission denied"
        remedy = "check its permissions, or choose another folder with --data or FEDHV_DATA"
    else:
        reason = (error.strerror or str(error) or type(error).__name__).lower()
        remedy = "check the disk and the path"
    return InputError(f"Cannot {doing} {path}: {reason}; {remedy}.")


def present(path: Path) -> bool:
    """Whether a path exists. A folder without permission is an error, not a missing path."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise failed(path, "look at", error) from None
    return True


def listing(folder: Path) -> list[str]:
    """The names in a folder, sorted."""
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise failed(folder, "list", error) from None


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """A file to read bytes from."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise failed(path, "read", error) from None


@contextmanager
def uncompressed(path: Path) -> Iterator[IO[bytes]]:
    """The content of a plain or gzip file. The first bytes decide, not the name."""
    with opened(path) as file:
        magic = file.read(2)
        file.seek(0)
        if magic != b"\x1f\x8b":
            yield file
            return
        try:
            with gzip.open(file) as content:
                yield cast(IO[bytes], content)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            reason = str(error).rstrip(".")
            raise InputError(
                f"{path}: expected a whole gzip file, found a damaged or truncated one ({reason}); "
                "delete it and get it again."
            ) from None


def sha256(path: Path, limit: int) -> tuple[str, int]:
    """SHA-256 and length of a file's uncompressed content, reading at most `limit` bytes and one more."""
    digest, length = hashlib.sha256(), 0
    with uncompressed(path) as content:
        while length <= limit and (block := content.read(min(BLOCK, limit + 1 - length))):
            digest.update(block)
            length += len(block)
    return digest.hexdigest(), length


def make_folder(folder: Path) -> None:
    """Make a folder and those above it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise failed(folder, "make the folder", error) from None


def write_atomically(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Write a file atomically."""
    make_folder(path.parent)
    try:
        with replacing(path) as file:
            write(file)
    except OSError as error:
        raise failed(path, "write", error) from None
