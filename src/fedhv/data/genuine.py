"""A check that a benchmark's source files are the official ones."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fedhv.data.catalogue import SOURCES
from fedhv.data.files import sha256
from fedhv.support.errors import InputError


def refuse_altered(root: Path, paths: Iterable[Path]) -> None:
    """Reject a file with the name and length of an official file but another SHA-256: damaged, or of another dataset.

    A file of another length is a user's subset, or its reader rejects it.
    """
    files = {root / source.folder / file.name: (source, file) for source in SOURCES.values() for file in source.files}
    for path in paths:
        known = files.get(path.with_suffix("") if path.suffix == ".gz" else path)
        if known is None:
            continue
        source, official = known
        digest, length = sha256(path, official.length)
        if length == official.length and digest != official.sha256:
            raise InputError(
                f"{path}: expected {source.title}'s official file, SHA-256 {official.sha256[:12]}…, found "
                f"{digest[:12]}…; delete it and run `fedhv data download {source.name}`."
            )
