r"""Tables as LaTeX for booktabs, no wider than the text of a page.

The width of a table is estimated from the widths of Computer Modern's characters, without LaTeX. The first that fits is
taken: `\small` with the usual space between columns, less space, smaller print down to `\scriptsize`. A table that does
not fit even so is written as several below each other, each with the names of the rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from fedhv.report.blocks import names_of, split, without_repeats
from fedhv.report.cells import MINUS, Cell, Column, Table, signed_text
from fedhv.report.escape import latex_text

TEXT_WIDTH = 345.0
"""Points: the text width of LaTeX's article class at 10 pt, the narrowest of the usual one-column pages."""


@dataclass(frozen=True)
class Print:
    """A size of print: its command, the space on both sides of a column, and its em in points.

    Computer Modern's small sizes are wider than the ten-point size made smaller: 9 pt counts as 9.3, 7 pt as 8.
    """

    command: str
    space: float
    em: float


SIZES = (
    Print(r"\small", 6, 9.3), Print(r"\small", 4, 9.3), Print(r"\footnotesize", 4, 8.5),
    Print(r"\footnotesize", 3, 8.5), Print(r"\scriptsize", 3, 8.0), Print(r"\tiny", 2, 6.8),
)  # fmt: skip
"""From the largest to the smallest, which only names of a line's length need."""

WIDTHS = {
    0.28: "il.,:;'|![]·", 0.34: "fj- ", 0.40: "trs()I", 0.45: "cez", 0.50: "0123456789aog/–↑↓η#*",
    0.56: "bdhknpquvyxSJ", 0.66: "LZF", 0.79: "wABCDEGHKNOPQRTUVXY&−+=", 0.84: "m%", 1.03: "MW", 1.23: "±",
}  # fmt: skip
"""Upper bounds of the widths of Computer Modern's characters in ems; ± has the space around it."""
EM = {character: width for width, characters in WIDTHS.items() for character in characters}
OTHER = 0.8
BOLD = 1.15
"""Bold digits are wider."""


def latex(table: Table) -> str:
    """A LaTeX table for booktabs; a name that repeats is written once."""
    size, parts = fitted(table)
    lines = [
        r"% needs \usepackage{amsmath,booktabs}; fits a text width of " + f"{TEXT_WIDTH:g} pt",
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{latex_text(table.caption)}}}",
        rf"\label{{tab:{table.name}}}",
        size.command,
        rf"\setlength{{\tabcolsep}}{{{size.space:g}pt}}",
    ]
    for number, part in enumerate(parts):
        lines += [r"\par\medskip"] if number else []
        lines += _tabular(part, size)
    return "\n".join([*lines, r"\end{table}", ""])


def fitted(table: Table) -> tuple[Print, list[Table]]:
    """The size of print, and the tables below each other, with which a table fits the text."""
    for size in SIZES[:-1]:
        if sum(widths(table, size)) <= TEXT_WIDTH:
            return size, [table]
    # Of two or more tables the one in the larger print is easier to read.
    options = [(size, split(table, widths(table, size), TEXT_WIDTH)) for size in SIZES[2:]]
    fitting = [(size, parts) for size, parts in options if all(_fits(part, size) for part in parts)]
    return min(fitting or options[-1:], key=lambda option: len(option[1]))


def _fits(table: Table, size: Print) -> bool:
    return sum(widths(table, size)) <= TEXT_WIDTH


def _tabular(table: Table, size: Print) -> list[str]:
    beside = [column for column in table.columns if not column.aside]
    lines = [
        rf"\begin{{tabular}}{{{''.join(_align(table, i, size) for i, c in enumerate(table.columns) if not c.aside)}}}",
        r"\toprule",
        *_headings(beside),
        r"\midrule",
    ]
    for number, section in enumerate(table.sections):
        lines += [r"\addlinespace[1.5pt]"] if number else []
        above: Sequence[Cell] = ()
        for row in section:
            shown = zip(without_repeats(row, above, table.columns), table.columns, strict=True)
            lines.append(_row([_cell(cell) for cell, column in shown if not column.aside]))
            lines += _below(row, table.columns)
            above = row
    return [*lines, r"\bottomrule", r"\end{tabular}"]


# --- widths ---------------------------------------------------------------------------------------------------


def _align(table: Table, i: int, size: Print) -> str:
    """The column's letter; a listing that is long is a paragraph."""
    column = table.columns[i]
    if column.numeric:
        return "c"
    longest = max((text_width(row[i].plain, size) for row in table.rows), default=0.0)
    if column.listing and longest > _paragraph(table, i, size):
        return rf"p{{{_paragraph(table, i, size):.0f}pt}}"
    return "l"


def widths(table: Table, size: Print) -> list[float]:
    """The width of every column with the space around it; what stands aside needs none of its own."""
    found = []
    for i, column in enumerate(table.columns):
        if column.aside:
            found.append(0.0)
            continue
        cells = [text_width(row[i].plain, size) * (BOLD if row[i].rank == 1 else 1.0) for row in table.rows]
        widest = max([text_width(column.heading + column.arrow, size), *cells])
        if column.listing:
            widest = min(widest, _paragraph(table, i, size))
        found.append(widest + 2 * size.space)
    for group, members in itertools.groupby(range(len(found)), key=lambda i: table.columns[i].group):
        own = [i for i in members if not table.columns[i].aside]
        lacking = text_width(group, size) - (sum(found[i] for i in own) - 2 * size.space)
        if group and own and lacking > 0:
            found[own[-1]] += lacking  # as LaTeX does where a heading is wider than its columns
    return found


def _paragraph(table: Table, i: int, size: Print) -> float:
    """The least width of a listing: a quarter of the text, or its longest word."""
    words = [word for row in table.rows for word in row[i].plain.split()] + [table.columns[i].heading]
    return max(TEXT_WIDTH / 4, *(text_width(word, size) for word in words))


def text_width(text: str, size: Print) -> float:
    """An upper bound of the width of a text, in points."""
    return size.em * sum(EM.get(character, OTHER) for character in text.replace("_", ""))


# --- rows -----------------------------------------------------------------------------------------------------


def _headings(columns: Sequence[Column]) -> list[str]:
    """One line of headings, or two where columns have groups."""

    def heading(column: Column) -> str:
        return latex_text(column.heading + column.arrow)

    if not any(column.group for column in columns):
        return [_row([heading(column) for column in columns])]
    top, rules, at = [], [], 1
    for group, members in itertools.groupby(columns, key=lambda column: column.group):
        width = len(list(members))
        if group:
            top.append(rf"\multicolumn{{{width}}}{{c}}{{{latex_text(group)}}}")
            rules.append(rf"\cmidrule(lr){{{at}-{at + width - 1}}}")
        else:
            top += [""] * width
        at += width
    return [_row(top), "".join(rules), _row([heading(column) for column in columns])]


def _below(row: Sequence[Cell], columns: Sequence[Column]) -> list[str]:
    """What stands aside, as a line in small print below the row, under the other columns of its group."""
    if not any(column.aside for column in columns):
        return []
    first = names_of(columns)
    name = next(column.heading for column in columns if column.aside)
    cells = [*[""] * (first - 1), rf"\quad{{\scriptsize {latex_text(name)}}}"]
    pairs = list(zip(row[first:], columns[first:], strict=True))
    for _, members in itertools.groupby(pairs, key=lambda pair: pair[1].group):
        own = list(members)
        width = sum(not column.aside for _, column in own)
        below = " ".join(_cell(cell) for cell, column in own if column.aside)
        cells += [rf"\multicolumn{{{width}}}{{c}}{{\scriptsize {below}}}"] if below else [""] * width
    return [_row(cells)]


def _row(cells: Sequence[str]) -> str:
    r"""A row. `{}` protects a leading bracket or star, which would be an argument of the previous row's `\\`."""
    guard = "{}" if cells[0].lstrip()[:1] in ("[", "*") else ""
    return f"{guard}{' & '.join(cells)} \\\\"


def _cell(cell: Cell) -> str:
    if cell.paired is not None:
        mean, low, high = (signed_text(value, cell.digits).replace(MINUS, "-") for value in cell.paired.interval)
        return rf"{_number(mean, cell.rank)} $[{low},{high}]$"
    if cell.spread is None:
        return cell.latex or latex_text(cell.text)
    mean, deviation, power = cell.parts()
    number = mean if deviation is None else rf"{mean}\pm{deviation}"
    if power is not None:
        number = rf"{number if deviation is None else f'({number})'}\times10^{{{power}}}"
    number += r"^{\dagger}" if cell.mark else ""
    return _number(number, cell.rank)


def _number(number: str, rank: int | None) -> str:
    return {1: rf"\textbf{{\boldmath${number}$}}", 2: rf"\underline{{${number}$}}"}.get(rank or 0, f"${number}$")
