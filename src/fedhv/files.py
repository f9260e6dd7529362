"""Files that are either whole or not there."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedhv.errors import FedHVError, InputError


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write beside, flush to disk, then rename: a reader sees the old file or the new one, never a half."""
    data = content.encode() if isinstance(content, str) else content
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FedHVError(f"{path} could not be written: {error.strerror or error}.") from None


def make_folder(path: Path) -> Path:
    """The folder, made if need be; a place that cannot be written is bad input."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise InputError(
            f"The folder {path} cannot be written: {error.strerror or error}. Choose another with --out."
        ) from None
    return path


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep every other process out of a folder; the lock goes with the process, however that ends."""
    path = folder / ".lock"
    try:
        file = path.open("a")
    except OSError as error:
        raise InputError(f"The folder {folder} cannot be written: {error.strerror or error}.") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"Another process is using {folder}. Wait for it, or choose another folder.") from None
        yield
