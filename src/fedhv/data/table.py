"""Datasets that are one CSV file, read as text by column."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from fedhv.data.catalogue import Source
from fedhv.data.files import uncompressed
from fedhv.data.locate import missing
from fedhv.data.mnist import find_idx
from fedhv.support.errors import InputError

Table = dict[str, list[str]]
"""One list of texts per column."""


def load_table(root: Path, source: Source) -> Table:
    """The columns of a dataset in the data directory, plain or gzip."""
    folder, name = root / source.folder, source.files[0].name
    path = find_idx(folder, name)
    if path is None:
        remedy = f"Run `fedhv data download {source.name}`, or put the official file there (plain or .gz)"
        raise missing(source.title, [name], folder, remedy)
    return read_table(path, source)


def read_table(path: Path, source: Source) -> Table:
    """The required columns of a dataset from one file. Every row must be as long as the header."""
    with uncompressed(path) as content:
        data = content.read(source.largest + 1)
    if len(data) > source.largest:
        raise InputError(f"{path}: expected {source.title}'s table, found more than {source.largest} bytes.")
    try:
        rows = list(csv.reader(io.StringIO(data.decode()), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: expected a CSV file, found something else ({error}); get it again.") from None
    header = rows[0] if rows else []
    absent = [name for name in source.columns if name not in header]
    if absent:
        raise InputError(f"{path}: expected the column '{absent[0]}', found {header[:5]}…; get {source.title} again.")
    if len(rows) < 2:
        raise InputError(f"{path}: expected rows below the header, found none; get {source.title} again.")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise InputError(f"{path}, line {number}: expected {len(header)} fields, found {len(row)}; get it again.")
    return {name: [row[header.index(name)] for row in rows[1:]] for name in source.columns}


def numbers(table: Table, name: str) -> list[float]:
    """A column of numbers; NaN for an entry that is empty or "NA"."""
    found = []
    for row, text in enumerate(table[name], start=2):
        try:
            found.append(float(text) if text not in ("", "NA") else float("nan"))
        except ValueError:
            raise InputError(f"Column '{name}', line {row}: expected a number, found '{text[:40]}'.") from None
    return found
