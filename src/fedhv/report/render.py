"""Tables as Markdown, CSV, LaTeX, HTML, and on the terminal: the best bold, the second underlined."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from fedhv.report.cells import MINUS, Cell, Column, Table, signed_text
from fedhv.report.escape import html_text, latex_text, markdown_text, one_line
from fedhv.support.terminal import natural_width


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
    return (cell.value if _text_is_value(cell) else _no_formula(cell.plain),)


def latex(table: Table) -> str:
    """A LaTeX table for booktabs; a name that repeats is written once."""
    align = "".join("c" if column.numeric else "l" for column in table.columns)
    lines = [
        r"% needs \usepackage{amsmath,booktabs}",
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{latex_text(table.caption)}}}",
        rf"\label{{tab:{table.name}}}",
        r"\small",
        rf"\begin{{tabular}}{{{align}}}",
        r"\toprule",
        *_latex_headings(table.columns),
        r"\midrule",
    ]
    for number, section in enumerate(table.sections):
        lines += [r"\addlinespace[1.5pt]"] if number else []
        above: Sequence[Cell] = ()
        for row in section:
            lines.append(_latex_row([_latex_cell(c) for c in _without_repeats(row, above, table.columns)]))
            above = row
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def html(table: Table) -> str:
    """An HTML table, for a page without scripts."""

    def cell(entry: Cell) -> str:
        text = html_text(entry.plain)
        return f"<td>{ {1: f'<b>{text}</b>', 2: f'<u>{text}</u>'}.get(entry.rank or 0, text) }</td>"

    head = "".join(f"<th>{html_text(column.full)}</th>" for column in table.columns)
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in table.rows)
    caption = html_text(table.caption)
    return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def terminal(table: Table) -> TerminalTable:
    """For the terminal."""
    return TerminalTable(table)


@dataclass(frozen=True)
class TerminalTable:
    """A table that fits the terminal: first the padding of columns is removed, then numbers and listings are folded.

    Names stay whole, unless they leave too little space for the parts of a number: "89.66" above "± 0.11".
    """

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Rendering by rich."""
        width = options.max_width
        padded = _on_terminal(self.table, padding=1)
        if natural_width(padded) <= width:
            yield padded
        else:
            yield _on_terminal(self.table, padding=0, whole=_least_width(self.table) <= width)


def _on_terminal(table: Table, padding: int, whole: bool = True) -> RichTable:
    title = Text(table.title, style="bold")
    out = RichTable(box=box.SIMPLE_HEAD, title=title, title_justify="left", padding=(0, padding))
    for column in table.columns:
        heading = f"{column.group}\n{column.heading}" if column.group else column.heading
        out.add_column(
            Text(heading + column.arrow),
            justify="right" if column.numeric else "left",
            no_wrap=column.name and whole,
            overflow="fold",
        )
    for section in table.sections:
        above: Sequence[Cell] = ()
        for row in section:
            shown = _without_repeats(row, above, table.columns)
            out.add_row(*(Text(c.plain, {1: "bold", 2: "underline"}.get(c.rank or 0, "")) for c in shown))
            above = row
        out.add_section()
    return out


def _least_width(table: Table) -> int:
    """The width with whole names and folded numbers, including one space before every column and one at the end."""
    least = len(table.columns) + 1
    for i, column in enumerate(table.columns):
        shown = [row[i].plain for row in table.rows]
        # Headings of numbers may be broken anywhere, numbers only between their parts.
        parts = [column.heading, *shown] if column.name else [part for text in shown for part in text.split()]
        least += max((cell_len(part) for part in parts), default=0)
    return least


def _bar(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _latex_headings(columns: Sequence[Column]) -> list[str]:
    """One line of headings, or two where columns have groups."""

    def heading(column: Column) -> str:
        return latex_text(column.heading + column.arrow)

    if not any(column.group for column in columns):
        return [_latex_row([heading(column) for column in columns])]
    top, rules, at = [], [], 1
    for group, members in itertools.groupby(columns, key=lambda column: column.group):
        width = len(list(members))
        if group:
            top.append(rf"\multicolumn{{{width}}}{{c}}{{{latex_text(group)}}}")
            rules.append(rf"\cmidrule(lr){{{at}-{at + width - 1}}}")
        else:
            top += [""] * width
        at += width
    return [_latex_row(top), "".join(rules), _latex_row([heading(column) for column in columns])]


def _latex_row(cells: Sequence[str]) -> str:
    r"""A row. `{}` protects a leading bracket or star, which would be an argument of the previous row's `\\`."""
    guard = "{}" if cells[0].lstrip()[:1] in ("[", "*") else ""
    return f"{guard}{' & '.join(cells)} \\\\"


def _latex_cell(cell: Cell) -> str:
    if cell.paired is not None:
        mean, low, high = (signed_text(value, cell.digits).replace(MINUS, "-") for value in cell.paired.interval)
        return rf"{_latex_number(mean, cell.rank)} $[{low},{high}]$"
    if cell.spread is None:
        return cell.latex or latex_text(cell.text)
    mean, deviation, power = cell.parts()
    number = mean if deviation is None else rf"{mean}\pm{deviation}"
    if power is not None:
        number = rf"{number if deviation is None else f'({number})'}\times10^{{{power}}}"
    return _latex_number(number, cell.rank)


def _latex_number(number: str, rank: int | None) -> str:
    return {1: rf"\textbf{{\boldmath${number}$}}", 2: rf"\underline{{${number}$}}"}.get(rank or 0, f"${number}$")


def _without_repeats(row: Sequence[Cell], above: Sequence[Cell], columns: Sequence[Column]) -> list[Cell]:
    """Blank the leading names that equal those of the row above, up to the first that differs."""
    shown, same = [], bool(above)
    for i, (cell, column) in enumerate(zip(row, columns, strict=True)):
        same = same and not column.numeric and i + 1 < len(columns) and cell.text == above[i].text
        shown.append(Cell() if same else cell)
    return shown


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
    text = one_line(text)
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@")) else text
