"""Atomic writing of files, and locks on folders."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from fedhv.support.errors import FedHVError, InputError


def write_atomic(path: Path, content: str | bytes, previous: Path | None = None) -> None:
    """Write a temporary file, flush it to disk, then rename it: a reader sees the old file or the new one.

    If `previous` is given, the old file is kept under that name once the new one is on disk.
    """
    try:
        with replacing(path, previous) as file:
            file.write(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise cannot_write(path, error) from None


@contextmanager
def replacing(path: Path, previous: Path | None = None) -> Iterator[IO[bytes]]:
    """A file to write that replaces `path` at the end. After an exception, `path` is unchanged."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp creates private files
        if previous is not None and path.exists():
            os.replace(path, previous)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):  # the folder may have been removed
            os.unlink(temporary)
        raise
    _sync_folder(path.parent)


_LEFT_OVER = re.compile(r"\.[\w-]+\.(toml|json|jsonl|safetensors)-[a-z0-9_]{8}")


def left_over(name: str) -> bool:
    """Whether a file is a temporary file of `write_atomic` whose process was killed."""
    return _LEFT_OVER.fullmatch(name) is not None


def sweep(folder: Path) -> None:
    """Remove temporary files of killed processes. The caller must have the folder's lock."""
    with suppress(OSError):  # leftover files do no harm
        for name in os.listdir(folder):
            if left_over(name):
                os.unlink(folder / name)


def cannot_write(path: Path | str, error: OSError) -> FedHVError:
    """The error for a file that cannot be written, with what to do."""
    remedy = {
        errno.ENOSPC: " Free some space and continue with --resume.",
        errno.EDQUOT: " Free some of your quota and continue with --resume.",
        errno.EROFS: " Make the disk writable and continue with --resume.",
        errno.ENOENT: " Has the folder been removed?",
    }.get(error.errno or 0, "")
    return FedHVError(f"{path} could not be written: {error.strerror or error}.{remedy}")


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power failure, if the file system supports it."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_folder(path: Path) -> Path:
    """The folder, created if necessary. A folder that cannot be written is invalid input."""
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
    """Lock a folder against other processes. The lock ends with the process, also where workers outlive it."""
    from filelock import FileLock, Timeout  # it takes as long to import as all commands that lock nothing

    lock = FileLock(folder / ".lock", mode=0o644)
    try:
        lock.acquire(timeout=0.2, poll_interval=0.05)  # whoever only looks (`in_use`) has it for a moment
    except Timeout:
        raise InputError(f"Another process is using {folder}. Wait for it, or choose another folder.") from None
    except OSError as error:
        raise InputError(f"The folder {folder} cannot be locked: {error.strerror or error}.") from None
    try:
        yield
    finally:
        lock.release()


def in_use(folder: Path) -> bool:
    """Whether a process has locked a folder."""
    if not (folder / ".lock").is_file():
        return False
    from filelock import FileLock, Timeout

    lock = FileLock(folder / ".lock", mode=0o644)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    except OSError:
        return False
    lock.release()
    return False
