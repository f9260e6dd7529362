"""Downloads of datasets from their official sources: verified, resumable and atomic."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO

from fedhv.data.catalogue import SOURCES, Official, Source
from fedhv.data.celeba import FOLDER, TERMS, ProgressCallback
from fedhv.data.fetch import fetch
from fedhv.data.files import failed, make_folder, present, sha256, write_atomically
from fedhv.data.mnist import find_idx
from fedhv.support.errors import FedHVError, InputError, unknown


def download(name: str, root: Path, progress: ProgressCallback | None = None) -> str:
    """Download a dataset into the data directory. Returns a message about what was done.

    Correct files are not downloaded again. A file with other content is an error; it is not replaced. CelebA is not
    downloaded: its terms and the manual steps are returned instead.

    Args:
        name: "mnist", "fashion-mnist", "cifar10", "tox21", "star" or "celeba".
        root: The data directory; made if it is not there.
        progress: Called with the file, the bytes so far and the total.
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
            target = folder / (f"{file.name}.gz" if file.packed else file.name)
            remote = file.remote or target.name
            _retrieve(source, remote, target, partial(_check_content, file=file), progress)
    else:
        target = root / source.archive
        if present(target):
            how = f"unpacked from {target.name} to"
            try:
                _unpack(target, folder, source)
            except OSError as error:
                raise failed(target, "unpack", error) from None
        else:
            _retrieve(source, target.name, target, partial(_unpack, folder=folder, source=source), progress)
            with suppress(OSError):
                target.unlink()
    files = "1 file" if len(wanted) == 1 else f"{len(wanted)} files"
    return f"{source.title}: {files} {how} {folder}, SHA-256 verified."


def _there(folder: Path, source: Source, file: Official) -> bool:
    """Whether the file exists with the official content. Other content is an error."""
    path = find_idx(folder, file.name) if source.archive is None else folder / file.name
    if path is None or not present(path):
        return False
    try:
        _check_content(path, file)
    except FedHVError as error:
        raise InputError(f"{error} Move or delete it before the download.") from None
    return True


def _check_content(path: Path, file: Official) -> None:
    digest, length = sha256(path, file.length)
    if digest != file.sha256:
        size = f"more than {file.length}" if length > file.length else str(length)
        raise FedHVError(
            f"{path}: expected the official {file.name} of {file.length} bytes with SHA-256 {file.sha256[:12]}…, "
            f"found {size} bytes with {digest[:12]}…."
        )


def _retrieve(
    source: Source, remote: str, target: Path, check: Callable[[Path], None], progress: ProgressCallback | None
) -> None:
    try:
        fetch(source.url + remote, target, check, source.largest, progress)
    except OSError as error:
        raise failed(target, "write", error) from None


def _unpack(archive: Path, folder: Path, source: Source) -> None:
    """Extract the archive's expected files into `folder`, all or none. Other members are not read."""
    wanted = {f"{source.folder}/{file.name}": file for file in source.files}
    contents: dict[Path, bytes] = {}
    try:
        with tarfile.open(archive, "r:gz") as members:
            for member in members:
                file = wanted.get(member.name.removeprefix("./"))
                if file is None:
                    continue
                content = members.extractfile(member) if member.size == file.length else None
                if content is None:
                    raise FedHVError(f"{archive}: expected {member.name} of {file.length} bytes, found {member.size}.")
                contents[folder / file.name] = content.read()
                digest = hashlib.sha256(contents[folder / file.name]).hexdigest()
                if digest != file.sha256:
                    expected = f"expected {file.name} with SHA-256 {file.sha256[:12]}…"
                    raise FedHVError(f"{archive}: {expected}, found {digest[:12]}….")
    except (tarfile.TarError, EOFError, KeyError, zlib.error, gzip.BadGzipFile) as error:
        raise FedHVError(f"{archive}: expected a whole tar.gz archive, found a damaged one ({error}).") from None
    lacking = [name for name, file in wanted.items() if folder / file.name not in contents]
    if lacking:
        raise FedHVError(f"{archive}: expected {', '.join(sorted(lacking))}, found none of that name.")
    for path, data in contents.items():
        write_atomically(path, partial(_write, data))


def _write(data: bytes, file: IO[bytes]) -> None:
    file.write(data)
