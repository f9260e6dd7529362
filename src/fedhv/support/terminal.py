"""Helpers for lines and tables on a terminal."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

UNLIMITED = 1_000_000


def print_line(console: Console, text: str) -> None:
    """Print a line unchanged: square brackets are not markup, and long paths are not wrapped."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def natural_width(table: Table) -> int:
    """The width of a table without a limit."""
    return Console(width=UNLIMITED).measure(table).maximum


def longest_word(text: str) -> int:
    """The width of the longest word of a text, which a column needs so that none is broken."""
    return max(map(cell_len, text.split()), default=0)
