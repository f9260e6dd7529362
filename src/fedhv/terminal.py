"""What tables on a terminal have in common."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

UNLIMITED = 1_000_000


def natural_width(table: Table) -> int:
    """How wide a table is where nothing limits it."""
    return Console(width=UNLIMITED).measure(table).maximum
