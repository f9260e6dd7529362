"""What lines and tables on a terminal have in common."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

UNLIMITED = 1_000_000


def print_line(console: Console, text: str) -> None:
    """A line as it is: names in square brackets are no markup, and a path is not broken in two."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def natural_width(table: Table) -> int:
    """How wide a table is where nothing limits it."""
    return Console(width=UNLIMITED).measure(table).maximum
