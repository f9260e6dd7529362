"""A table that is too wide, as several below each other: each has the names, and some of the other columns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from fedhv.report.cells import Cell, Column, Table


def names_of(columns: Sequence[Column]) -> int:
    """How many columns at the beginning say what a row is about."""
    return next((i for i, column in enumerate(columns) if column.numeric or column.group), len(columns))


def split(table: Table, widths: Sequence[float], room: float) -> list[Table]:
    """Tables with all columns of a table, each at most `room` wide if that can be.

    Args:
        table: The table.
        widths: The width of every column, with the space between columns.
        room: The width that a table may have.
    """
    first = names_of(table.columns)
    left = room - sum(widths[:first])
    parts: list[list[int]] = []
    for _, members in itertools.groupby(range(first, len(widths)), key=lambda i: table.columns[i].group or str(i)):
        own = list(members)
        # A group of columns stays together where it can; what stands aside goes with the column before it.
        pieces = [own] if sum(widths[i] for i in own) <= left else [[i] for i in own]
        for piece in pieces:
            used = sum(widths[i] for i in parts[-1]) if parts else 0.0
            aside = all(table.columns[i].aside for i in piece)
            if parts and (aside or used + sum(widths[i] for i in piece) <= left):
                parts[-1] += piece
            else:
                parts.append(piece)
    if len(parts) < 2:
        return [table]
    return [_with(table, [*range(first), *part]) for part in parts]


def _with(table: Table, kept: Sequence[int]) -> Table:
    sections = tuple(tuple(tuple(row[i] for i in kept) for row in section) for section in table.sections)
    return replace(table, columns=tuple(table.columns[i] for i in kept), sections=sections)


def without_repeats(row: Sequence[Cell], above: Sequence[Cell], columns: Sequence[Column]) -> list[Cell]:
    """The row with leading names that equal those of the row above left blank, up to the first that differs."""
    shown, same = [], bool(above)
    for i, (cell, column) in enumerate(zip(row, columns, strict=True)):
        same = same and not column.numeric and i + 1 < len(columns) and cell.text == above[i].text
        shown.append(Cell() if same else cell)
    return shown
