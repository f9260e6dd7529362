"""Fetching datasets from their official sources: checked, resumable, and never half there."""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import re
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from fedhv.data.catalogue import SOURCES, Official, Source
from fedhv.data.celeba import FOLDER, TERMS, Progress
from fedhv.data.files import BLOCK, failed, make_folder, present, sha256
from fedhv.data.mnist import find_idx
from fedhv.support.errors import FedHVError, InputError, unknown

ATTEMPTS = 4
"""How often a broken connection is taken up again before giving up (what arrived is kept)."""
PAUSE = 1.0
"""Seconds before the second attempt; doubled for every further one."""
TIMEOUT = (15, 60)
"""Seconds to connect, and seconds without a byte."""


def download(name: str, root: Path, progress: Progress | None = None) -> str:
    """Fetch a dataset into the data directory and say what was done.

    Files that are already there and right are left alone; files that are there and wrong are named, not replaced.
    CelebA is not fetched: its terms and the manual way are returned instead.

    Args:
        name: "mnist", "fashion-mnist", "cifar10" or "celeba".
        root: The data directory; made if it is not there.
        progress: Told the file, the bytes so far and how many there will be.
    """
    if name == "celeba":
        return TERMS.format(folder=root / FOLDER)
    if name not in SOURCES:
        raise unknown("dataset", name, [*SOURCES, "celeba"])
    source = SOURCES[name]
    folder = root / source.folder
    wanted = [file for file in source.files if not _there(folder, source, file)]
    if not wanted:
        return f"{source.title}: all {len(source.files)} files are already in {folder}, SHA-256 verified."
    make_folder(folder)
    how = "fetched to"
    if source.archive is None:
        for file in wanted:
            target = folder / f"{file.name}.gz"
            _retrieve(source, target, partial(_check_content, file=file), progress)
    else:
        target = root / source.archive
        if present(target):
            how = f"unpacked from {target.name} to"
            try:
                _unpack(target, folder, source)
            except OSError as error:
                raise failed(target, "unpack", error) from None
        else:
            _retrieve(source, target, partial(_unpack, folder=folder, source=source), progress)
            with suppress(OSError):
                target.unlink()
    files = "1 file" if len(wanted) == 1 else f"{len(wanted)} files"
    return f"{source.title}: {files} {how} {folder}, SHA-256 verified."


def _there(folder: Path, source: Source, file: Official) -> bool:
    """Whether the file is there with the official content; one with another content is an error."""
    path = find_idx(folder, file.name) if source.archive is None else folder / file.name
    if path is None or not present(path):
        return False
    try:
        _check_content(path, file)
    except FedHVError as error:
        raise InputError(f"{error} It is in the way of the download: move or delete it first.") from None
    return True


def _check_content(path: Path, file: Official) -> None:
    digest, length = sha256(path, file.length)
    if digest != file.sha256:
        size = f"more than {file.length}" if length > file.length else str(length)
        raise FedHVError(
            f"{path}: expected the official {file.name} of {file.length} bytes with SHA-256 {file.sha256[:12]}…, "
            f"found {size} bytes with {digest[:12]}…."
        )


# --- one download -------------------------------------------------------------------------------------------


def _retrieve(source: Source, target: Path, check: Callable[[Path], None], progress: Progress | None) -> None:
    """Fetch one file through pooch, which puts it in its place only when our downloader has checked it."""
    try:
        import pooch
    except ImportError:
        raise InputError("Downloading needs pooch; run `pip install 'fedhv[data]'`.") from None
    downloader = Resumable(target.with_name(target.name + ".part"), check, source.largest, progress)
    try:
        with _quiet(pooch.get_logger()):
            pooch.retrieve(
                source.url + target.name,
                known_hash=None,  # `check` compares the uncompressed content instead
                fname=target.name,
                path=target.parent,
                downloader=downloader,
            )
    except OSError as error:
        raise failed(target, "write", error) from None


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Without pooch's advice to note a hash, which is ours to check."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


@dataclass
class Resumable:
    """A downloader for pooch that continues a partial file with a range request and checks the whole.

    Attributes:
        part: Where the bytes are kept until they are complete and right; survives a broken connection.
        check: Raises `FedHVError` unless the complete file is the right one.
        largest: The most bytes to accept.
        progress: Told the file, the bytes so far and how many there will be.
    """

    part: Path
    check: Callable[[Path], None]
    largest: int
    progress: Progress | None = None

    def __call__(self, url: str, output_file: str | os.PathLike[str], pooch: Any = None) -> None:
        """Fetch `url` into `output_file`, which is pooch's temporary file."""
        resumed = present(self.part) and self.part.stat().st_size > 0
        self._fetch(url)
        try:
            self.check(self.part)
        except FedHVError as error:
            with suppress(OSError):
                self.part.unlink()
            if not resumed:
                raise FedHVError(f"Downloaded from {url}: {error} Nothing was kept; try again later.") from None
            # The beginning was of an earlier day; the file may have changed since. Once more, from the start.
            return self(url, output_file, pooch)
        os.replace(self.part, output_file)
        return None

    def _fetch(self, url: str) -> None:
        """All bytes of `url` into the partial file, taking up broken connections."""
        import requests
        from urllib3.exceptions import HTTPError

        pause = PAUSE
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with requests.Session() as session:
                    return self._continue(session, url)
            except (requests.RequestException, HTTPError) as error:
                if attempt == ATTEMPTS:
                    kept = self.part.stat().st_size if present(self.part) else 0
                    remedy = (
                        f"{kept} bytes are kept, run the command again to continue."
                        if kept
                        else "check the connection and run the command again, or put the files there by hand."
                    )
                    raise FedHVError(f"Cannot download {url}: {_reason(error)}; {remedy}") from None
            time.sleep(pause)
            pause *= 2
        return None

    def _continue(self, session: Any, url: str) -> None:
        have = self.part.stat().st_size if present(self.part) else 0
        # Compressed transfer would make byte positions mean something else.
        headers = {"Accept-Encoding": "identity", "User-Agent": "fedhv"}
        if have:
            headers["Range"] = f"bytes={have}-"
        with session.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
            status = response.status_code
            if status == 416:
                # Nothing lies beyond what we have: it is complete, or it is not a part of this file at all.
                if response.headers.get("Content-Range") == f"bytes */{have}":
                    return None
                self.part.unlink()
                return self._continue(session, url)
            if status >= 500 or status == 429:
                response.raise_for_status()
            if status not in (200, 206):
                raise FedHVError(
                    f"Cannot download {url}: the server answered {status} {response.reason}; "
                    "check the connection, or put the files there by hand."
                )
            if status == 206 and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
                raise FedHVError(f"Cannot continue {url}: the server sent another range; delete {self.part}.")
            if status == 200:
                have = 0  # the server does not continue files: from the start
            announced = response.headers.get("Content-Length", "")
            total = have + int(announced) if announced.isdecimal() else None
            self._write(response.raw, have, total, url)
        return None

    def _write(self, raw: Any, have: int, total: int | None, url: str) -> None:
        import requests

        if total is not None and total > self.largest:
            raise FedHVError(f"Cannot download {url}: expected at most {self.largest} bytes, found {total}.")
        with self.part.open("ab" if have else "wb") as file:
            while block := raw.read(BLOCK, decode_content=False):
                have += len(block)
                if have > self.largest:
                    raise FedHVError(f"Cannot download {url}: expected at most {self.largest} bytes, found more.")
                file.write(block)
                if self.progress is not None:
                    self.progress(self.part.stem, have, total)
        if total is not None and have < total:
            raise requests.ConnectionError(f"the connection ended after {have} of {total} bytes")


def _reason(error: Exception) -> str:
    """The innermost cause in one line: the outer ones repeat it with addresses of Python objects."""
    inner: Any = error
    while True:
        reason = getattr(inner, "reason", None)
        following = (
            reason
            if isinstance(reason, Exception)
            else next((a for a in getattr(inner, "args", ()) if isinstance(a, Exception)), None)
        )
        if following is None:
            break
        inner = following
    text = str(inner.strerror if isinstance(inner, OSError) and inner.strerror else inner)
    line = text.splitlines()[0] if text else type(inner).__name__
    line = re.sub(r"^IncompleteRead\((\d+) bytes read.*", r"the connection ended after \1 bytes", line)
    return re.sub(r"^(<[^>]*>|\w+\(host=[^)]*\)): ", "", line).rstrip(".")


# --- the archive of CIFAR-10 ---------------------------------------------------------------------------------


def _unpack(archive: Path, folder: Path, source: Source) -> None:
    """Put the archive's expected files into `folder`, all or none, whatever else the archive holds.

    Only regular files of the expected name and length are read, and only under names that we choose are they
    written; an archive with links, or with paths that lead elsewhere, is not the official one and is refused.
    """
    wanted = {f"{source.folder}/{file.name}": file for file in source.files}
    ready: dict[Path, Path] = {}
    try:
        with tarfile.open(archive, "r:gz") as members:
            for count, member in enumerate(members):
                _refuse_unsafe(archive, member, count)
                file = wanted.pop(member.name.removeprefix("./"), None)
                if file is None:
                    continue
                content = members.extractfile(member) if member.size == file.length else None
                if content is None:
                    raise FedHVError(f"{archive}: expected {member.name} of {file.length} bytes, found {member.size}.")
                ready[_extract(archive, content, folder, file)] = folder / file.name
        if wanted:
            raise FedHVError(f"{archive}: expected {', '.join(sorted(wanted))}, found none of that name.")
        for temporary, path in ready.items():
            os.replace(temporary, path)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FedHVError(f"{archive}: expected a whole tar.gz archive, found a damaged one ({error}).") from None
    finally:
        for temporary in ready:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def _refuse_unsafe(archive: Path, member: tarfile.TarInfo, count: int) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name or not (member.isreg() or member.isdir()):
        kind = "a link or device" if not (member.isreg() or member.isdir()) else "a path outside the archive"
        raise FedHVError(f"{archive}: expected plain files, found {kind} ({member.name[:80]!r}); it is refused.")
    if member.size > 64 << 20 or count > 100:
        raise FedHVError(f"{archive}: expected a few files of 31 MB, found more; it is refused.")


def _extract(archive: Path, content: Any, folder: Path, file: Official) -> Path:
    """One member into a temporary file beside its place, checked."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{file.name}.", suffix=".tmp", dir=folder)
    path = Path(temporary)
    try:
        digest = hashlib.sha256()
        with os.fdopen(descriptor, "wb") as out:
            while block := content.read(BLOCK):
                digest.update(block)
                out.write(block)
        if digest.hexdigest() != file.sha256:
            raise FedHVError(
                f"{archive}: expected {file.name} with SHA-256 {file.sha256[:12]}…, found {digest.hexdigest()[:12]}…."
            )
        os.chmod(path, 0o644)
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise
    return path
