"""The cells, columns and tables of a report, before they are written as Markdown, CSV, LaTeX or HTML."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from fedhv.report.ranking import standing
from fedhv.support.statistics import Paired, Spread

K = TypeVar("K", bound=Hashable)

MINUS = "−"

FIXED_UP_TO = 1e6
"""Larger numbers (the hypervolume of forty tasks) are written with a power of ten."""


@dataclass(frozen=True)
class Cell:
    """One entry: text, a mean with its deviation and its rank, or a mean difference with its interval.

    Attributes:
        text: Text, or a number without a spread.
        latex: The text for LaTeX, if it is not the escaped text.
        spread: A mean over runs.
        paired: A mean difference between runs.
        digits: Digits after the decimal point.
        rank: 1 for the best, or for a difference whose interval excludes 0; 2 for what is level with the best mean.
        value: The sort key if there is no spread.
        mark: A sign behind the number, which the caption explains.
        data: What CSV has in place of the text, for programs: a setting's own name.
        exact: Whether a deviation of zero is left out, as for bytes, which do not vary between seeds.
    """

    text: str = ""
    latex: str | None = None
    spread: Spread | None = None
    paired: Paired | None = None
    digits: int = 2
    rank: int | None = None
    value: float | None = None
    exact: bool = False
    data: str | None = None
    mark: str = ""

    @property
    def plain(self) -> str:
        """The text without emphasis."""
        if self.paired is not None:
            mean, low, high = (signed_text(value, self.digits) for value in self.paired.interval)
            return f"{mean} [{low}, {high}]"
        if self.spread is None:
            return self.text
        mean, deviation, power = self.parts()
        number = mean if deviation is None else f"{mean} ± {deviation}"
        if power is not None:
            number = f"({number})e{power}" if deviation is not None else f"{number}e{power}"
        return number + self.mark

    @property
    def number(self) -> float | None:
        """The sort key."""
        averaged = self.spread or self.paired
        return averaged.mean if averaged else self.value

    def parts(self) -> tuple[str, str | None, int | None]:
        """Mean, deviation and, for large numbers, their common power of ten."""
        assert self.spread is not None
        mean, deviation = self.spread.mean, self.spread.deviation
        if self.exact and deviation == 0:
            deviation = None
        power = None
        if math.isfinite(mean) and abs(mean) >= FIXED_UP_TO:
            power = math.floor(math.log10(abs(mean)))
            mean, deviation = mean / 10**power, None if deviation is None else deviation / 10**power
        first, _, second = Spread(mean, deviation, self.spread.count).text(self.digits).partition(" ± ")
        return first, second or None, power


@dataclass(frozen=True)
class Column:
    """A heading; `higher` is whether more is better, or None.

    A column that stands `aside` has what LaTeX writes below the other columns of its group, to save width.
    A column that is not numeric has names, which a narrow terminal does not wrap, unless it is a `listing`.
    """

    heading: str
    group: str = ""
    higher: bool | None = None
    numeric: bool = True
    listing: bool = False
    aside: bool = False

    @property
    def name(self) -> bool:
        """Whether its cells are names."""
        return not (self.numeric or self.listing)

    @property
    def arrow(self) -> str:
        """Which direction is better."""
        return {True: " ↑", False: " ↓", None: ""}[self.higher]

    @property
    def full(self) -> str:
        """The heading with its group and arrow, for tables with one line of headings."""
        return f"{self.group} {self.heading}".strip() + self.arrow


@dataclass(frozen=True)
class Table:
    """A table with a name for files, a title and a caption; `sections` are the rows that belong together."""

    name: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    sections: tuple[tuple[tuple[Cell, ...], ...], ...] = field(default=())

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        """All rows."""
        return [row for section in self.sections for row in section]


def words(text: str, latex: str | None = None) -> Cell:
    """A cell of text."""
    return Cell(text, latex)


def signed(value: float | None, digits: int, unit: str = "") -> Cell:
    """A difference, with its sign."""
    return Cell("–") if value is None else Cell(signed_text(value, digits) + unit, value=value)


def signed_text(value: float, digits: int) -> str:
    """A number with its sign; no sign if it is rounded to zero."""
    text = f"{value:+.{digits}f}"
    return text.replace("-", MINUS) if float(text) else text[1:]


def ranked(values: Mapping[K, Mapping[int, float]], higher: bool | None, digits: int) -> dict[K, Cell]:
    """One cell per method, from the values of its seeds, with its `standing`."""
    places = standing(values, higher)
    return {
        key: Cell(spread=Spread.of(list(runs.values())), digits=digits, rank=places.get(key)) if runs else Cell("–")
        for key, runs in values.items()
    }
