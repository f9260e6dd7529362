"""Tables on the terminal. No word and no number is broken: a table that is too wide becomes several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from fedhv.report.blocks import split, without_repeats
from fedhv.report.cells import Cell, Column, Table
from fedhv.support.terminal import longest_word, natural_width


def terminal(table: Table) -> TerminalTable:
    """For the terminal."""
    return TerminalTable(table)


@dataclass(frozen=True)
class TerminalTable:
    """A table that fits the terminal.

    First the padding of columns is removed, then numbers and listings are wrapped between their words ("89.66" above
    "± 0.11"), then the columns are divided among several tables with the same names, then names are wrapped.
    """

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Rendering by rich."""
        width = options.max_width
        padded = _on_terminal(self.table, padding=1)
        if natural_width(padded) <= width:
            yield padded
            return
        least = [_least(self.table, i) for i in range(len(self.table.columns))]
        whole = max(map(_least_width, split(self.table, least, width - 1))) <= width
        if not whole:
            least = [_least(self.table, i, whole=False) for i in range(len(self.table.columns))]
        for number, part in enumerate(split(self.table, least, width - 1)):
            yield _on_terminal(part, padding=0, whole=whole, titled=number == 0, widths=_widths(part, width, whole))


def _on_terminal(
    table: Table, padding: int, whole: bool = True, titled: bool = True, widths: Sequence[int] | None = None
) -> RichTable:
    title = Text(table.title, style="bold") if titled else None
    out = RichTable(box=box.SIMPLE_HEAD, title=title, title_justify="left", padding=(0, padding))
    for i, column in enumerate(table.columns):
        out.add_column(
            Text(_heading(column)),
            justify="right" if column.numeric else "left",
            no_wrap=column.name and whole,
            overflow="fold",
            width=None if widths is None else widths[i],
        )
    for section in table.sections:
        above: Sequence[Cell] = ()
        for row in section:
            shown = without_repeats(row, above, table.columns)
            out.add_row(*(Text(c.plain, {1: "bold", 2: "underline"}.get(c.rank or 0, "")) for c in shown))
            above = row
        out.add_section()
    return out


def _widths(table: Table, room: int, whole: bool) -> list[int]:
    """The columns' widths: each at least its longest word. Those that need the least more come first, names before all.

    rich would take space from all columns alike, beyond what some can give.
    """
    widths = [_least(table, i, whole) - 1 for i in range(len(table.columns))]
    spare = max(0, room - 1 - sum(width + 1 for width in widths))
    lacking = [_natural(table, i) - width for i, width in enumerate(widths)]
    for i in sorted(range(len(widths)), key=lambda i: (not table.columns[i].name, lacking[i])):
        more = min(lacking[i], spare)
        widths[i] += more
        spare -= more
    return widths


def _natural(table: Table, i: int) -> int:
    """The width of a column in which nothing is wrapped."""
    lines = (*_heading(table.columns[i]).splitlines(), *(row[i].plain for row in table.rows))
    return max(map(cell_len, lines))


def _heading(column: Column) -> str:
    heading = f"{column.group}\n{column.heading}" if column.group else column.heading
    return heading + column.arrow


def _least_width(table: Table) -> int:
    """The width of a table whose names are whole and whose other cells are wrapped between words."""
    return 1 + sum(_least(table, i) for i in range(len(table.columns)))


def _least(table: Table, i: int, whole: bool = True) -> int:
    """The width of a column without a broken word, with the space to its left."""
    column, shown = table.columns[i], [row[i].plain for row in table.rows]
    if column.name and whole:
        return 1 + max(cell_len(text) for text in (column.heading, *shown))
    return 1 + max(map(longest_word, (_heading(column), *shown)))
