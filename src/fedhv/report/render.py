"""Tables as Markdown, CSV, LaTeX, HTML, and on the terminal: the best bold, what is level with it underlined."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from fedhv.report.cells import MINUS, Cell, Table
from fedhv.report.escape import html_text, markdown_text
from fedhv.report.latex import latex
from fedhv.report.terminal import terminal
from fedhv.support.wording import on_one_line

__all__ = ["comma_separated", "html", "latex", "markdown", "terminal"]


def markdown(table: Table) -> str:
    """A Markdown table under its title, its caption below."""

    def cell(entry: Cell) -> str:
        text = markdown_text(entry.plain)
        return {1: f"**{text}**", 2: f"<u>{text}</u>"}.get(entry.rank or 0, text)

    lines = [
        _bar(markdown_text(column.full) for column in table.columns),
        _bar("---:" if column.numeric else "---" for column in table.columns),
        *(_bar(cell(entry) for entry in row) for row in table.rows),
    ]
    return "\n".join([f"### {markdown_text(table.title)}", "", *lines, "", markdown_text(table.caption), ""])


def comma_separated(table: Table) -> str:
    """Unrounded values. A mean has three columns (mean, std, runs), a difference too (difference, low, high)."""
    parts = [_parts([row[i] for row in table.rows]) for i in range(len(table.columns))]
    headings: list[str] = []
    for column, each in zip(table.columns, parts, strict=True):
        name = f"{column.group} {column.heading}".strip()
        headings += [_no_formula(f"{name} {what}".strip()) for what in each]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(headings)
    for row in table.rows:
        writer.writerow([value for entry, each in zip(row, parts, strict=True) for value in _values(entry, each)])
    return out.getvalue()


SPREAD, PAIRED, PLAIN = ("mean", "std", "runs"), ("difference", "low", "high"), ("",)


def _parts(cells: Iterable[Cell]) -> tuple[str, ...]:
    """The names of the CSV columns of one column."""
    cells = list(cells)
    return SPREAD if any(c.spread for c in cells) else PAIRED if any(c.paired for c in cells) else PLAIN


def _values(cell: Cell, parts: tuple[str, ...]) -> Sequence[object]:
    if parts is SPREAD:
        spread = cell.spread
        return ("", "", 0) if spread is None else (spread.mean, _or_empty(spread.deviation), spread.count)
    if parts is PAIRED:
        return ("", "", "") if cell.paired is None else cell.paired.interval
    return (cell.value if _text_is_value(cell) else _no_formula(cell.data or cell.plain),)


def html(table: Table) -> str:
    """An HTML table, for a page without scripts."""

    def cell(entry: Cell) -> str:
        text = html_text(entry.plain)
        return f"<td>{ {1: f'<b>{text}</b>', 2: f'<u>{text}</u>'}.get(entry.rank or 0, text) }</td>"

    head = "".join(f"<th>{html_text(column.full)}</th>" for column in table.columns)
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in table.rows)
    caption = html_text(table.caption)
    return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _bar(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _or_empty(value: float | None) -> float | str:
    return "" if value is None else value


def _text_is_value(cell: Cell) -> bool:
    """Whether the text of a cell is its value, rounded or not. In "3/12" the value is only the sort key."""
    try:
        float(cell.text.replace(MINUS, "-"))
    except ValueError:
        return False
    return cell.value is not None


def _no_formula(text: str) -> str:
    """One line that a spreadsheet does not read as a formula."""
    text = on_one_line(text)
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@")) else text
