"""Verification of the files in the data directory."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from fedhv.data.catalogue import SOURCES, Official, Source
from fedhv.data.celeba import (
    ATTRIBUTE_LIST,
    FOLDER,
    IMAGES,
    PARTITION_LIST,
    SIDE,
    SPLITS,
    ProgressCallback,
    arrays_of,
    check_jpegs,
    read_lists,
    read_split,
    used,
)
from fedhv.data.files import listing, present, sha256
from fedhv.data.mnist import find_idx
from fedhv.data.table import read_table
from fedhv.support.errors import InputError

FileState = Literal["verified", "readable", "damaged", "missing"]
Presence = Literal["there", "not complete", "not there"]

CELEBA_SIZES = {"train": 162_770, "test": 19_962}
CELEBA_IMAGES = 202_599


@dataclass(frozen=True)
class Finding:
    """The result for one file or dataset.

    Attributes:
        dataset: Its title.
        path: The file or folder.
        state: "verified": SHA-256 is the official one. "readable": well formed; no official hash exists.
            "damaged": truncated, malformed, or another SHA-256. "missing": not found.
        detail: One line.
    """

    dataset: str
    path: Path
    state: FileState
    detail: str

    @property
    def ok(self) -> bool:
        """Whether it can be used."""
        return self.state in ("verified", "readable")


def verify(root: Path, progress: ProgressCallback | None = None) -> list[Finding]:
    """Verify every dataset below the data directory. Problems are returned, not raised.

    Args:
        root: The data directory.
        progress: Called with the number of CelebA's decoded images.
    """
    looks: list[tuple[str, Path, Callable[[], list[Finding]]]] = [
        (source.title, root / source.folder, partial(_official, root, source)) for source in SOURCES.values()
    ]
    looks.append(("CelebA", root / FOLDER, partial(_celeba, root / FOLDER, progress)))
    findings = []
    for title, folder, look in looks:
        try:
            findings += look()
        except InputError as error:  # the folder cannot be read
            findings.append(Finding(title, folder, "damaged", str(error)))
    return findings


def presence(root: Path) -> dict[str, Presence]:
    """For every dataset, whether the files that a run needs exist; they are not opened."""
    found = {}
    for name, source in SOURCES.items():
        n = len(_there(root / source.folder, source))
        found[name] = _presence(n == len(source.files), n > 0)
    folder = root / FOLDER
    kept = [present(arrays_of(folder, split)) for split in SPLITS]
    originals = [present(folder / name) for name in (ATTRIBUTE_LIST, PARTITION_LIST)]
    originals.append(present(folder / IMAGES) and bool(listing(folder / IMAGES)))
    found[FOLDER] = _presence(all(kept) or all(originals), any(kept) or any(originals))
    return found


def _presence(whole: bool, some: bool) -> Presence:
    return "there" if whole else "not complete" if some else "not there"


def _there(folder: Path, source: Source) -> dict[Official, Path]:
    """The official files that are in a folder."""
    paths = {
        file: find_idx(folder, file.name) if source.archive is None else folder / file.name for file in source.files
    }
    return {file: path for file, path in paths.items() if path is not None and present(path)}


def _official(root: Path, source: Source) -> list[Finding]:
    folder = root / source.folder
    there = _there(folder, source)
    if not there:
        get = f"run `fedhv data download {source.name}`"
        if source.archive and present(root / "cifar-10-batches-py"):
            get = f"cifar-10-batches-py is pickled and never loaded; {get} for the binary version"
        return [Finding(source.title, folder, "missing", f"not there; {get}")]
    return [
        _file(source, file, there[file])
        if file in there
        else Finding(source.title, folder / file.name, "missing", f"not there; run `fedhv data download {source.name}`")
        for file in source.files
    ]


def _file(source: Source, file: Official, path: Path) -> Finding:
    try:
        digest, length = sha256(path, file.length)
    except InputError as error:
        return Finding(source.title, path, "damaged", str(error))
    if digest == file.sha256:
        return Finding(source.title, path, "verified", f"{length:,} bytes, SHA-256 {digest[:12]}…")
    if source.columns:
        try:
            n = len(read_table(path, source)[source.columns[0]])
        except InputError as error:
            return Finding(source.title, path, "damaged", str(error))
        return Finding(source.title, path, "readable", f"another version of the table, {n:,} rows")
    if length != file.length:
        found = "more" if length > file.length else f"{length:,}"
        detail = f"expected {file.length:,} bytes, found {found}; delete it and get it again"
    else:
        detail = f"expected SHA-256 {file.sha256[:12]}…, found {digest[:12]}…; delete it and get it again"
    return Finding(source.title, path, "damaged", detail)


def _celeba(folder: Path, progress: ProgressCallback | None) -> list[Finding]:
    """The files that a run would use: the stored arrays if both exist, otherwise the JPEGs and their lists."""
    if all(present(arrays_of(folder, split)) for split in SPLITS):
        return [_checked(arrays_of(folder, split), partial(_kept, folder, split)) for split in SPLITS]
    if any(present(folder / name) for name in (IMAGES, ATTRIBUTE_LIST, PARTITION_LIST)):
        return [_checked(folder / IMAGES, partial(_originals, folder, progress))]
    how = "not there; `fedhv data download celeba` shows its terms and where to put its files"
    return [Finding("CelebA", folder, "missing", how)]


def _checked(path: Path, describe: Callable[[], str]) -> Finding:
    try:
        return Finding("CelebA", path, "readable", describe())
    except InputError as error:
        return Finding("CelebA", path, "damaged", str(error))


def _kept(folder: Path, split: str) -> str:
    n = len(read_split(folder, split).images)
    whole = (
        "the whole" if n == CELEBA_SIZES[split] else f"a subset of {n:,} of the {CELEBA_SIZES[split]:,} images of the"
    )
    return f"{whole} {split} partition, {SIDE}x{SIDE}"


def _originals(folder: Path, progress: ProgressCallback | None) -> str:
    for name in (IMAGES, ATTRIBUTE_LIST, PARTITION_LIST):
        if not present(folder / name):
            raise InputError(f"{name} not found in {folder}; run `fedhv data download celeba` to see where it is.")
    lists = read_lists(folder)
    used(folder, lists)
    n, decoded = len(lists.names), ""
    if importlib.util.find_spec("PIL") is None:
        decoded = ", not decoded (that needs Pillow: `pip install 'fedhv[data]'`)"
    else:
        check_jpegs(folder, lists, progress)
    official = "" if n == CELEBA_IMAGES else f"; the official release has {CELEBA_IMAGES:,}"
    return f"{n:,} JPEGs, as listed{decoded}{official}"
