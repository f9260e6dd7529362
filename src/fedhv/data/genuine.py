"""Whether the files that a benchmark is built from are the official ones."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fedhv.data.catalogue import SOURCES
from fedhv.data.files import sha256
from fedhv.support.errors import InputError


def refuse_altered(root: Path, paths: Iterable[Path]) -> None:
    """Refuse a file of an official file's name and length but with another SHA-256: damaged, or of another dataset.

    A file of another length is left to its reader: it is a subset that somebody made, or the reader refuses it.
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
