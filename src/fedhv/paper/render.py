"""Entries and rankings as tables for readers and as records for programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fedhv.paper.comparison import Entry, Ranking, rankings
from fedhv.paper.output import Sheet
from fedhv.paper.published import Contest, Printed
from fedhv.report.cells import Cell, Column, Table, signed, words
from fedhv.report.groups import method_title
from fedhv.report.ranking import SHORT_RULE
from fedhv.support.statistics import Spread

Names = Callable[[str], str]
"""The name of a contest or a competitor in tables."""

NONE = Cell("–")
VERDICTS = {"yes": "yes", "best": "only the best", "no": "no"}
RANKED = f"Ours: {SHORT_RULE}. The paper's: bold is best and underlined second by means, as it marks them."


def values_sheet(
    name: str,
    title: str,
    caption: str,
    heads: Sequence[str],
    of: Sequence[Entry],
    shown: Names = method_title,
) -> Sheet:
    """Ours, the paper's and the difference for every competitor, a row each.

    Args:
        name: The name of its files.
        title: The text above the table.
        caption: The text below the table.
        heads: Names of the parts of a contest, and of the competitors.
        of: All entries.
        shown: The names of competitors and contests in tables.
    """
    metrics = list(dict.fromkeys(entry.metric for entry in of))
    columns = [Column(head, numeric=False) for head in heads]
    for metric in metrics:
        columns += [
            Column("Ours", metric.heading, metric.higher),
            Column("Paper", metric.heading, metric.higher),
            Column("Difference", metric.heading),
        ]
    sections: dict[Contest, dict[str, list[Cell]]] = {}
    for entry in of:
        names = [words(shown(part)) for part in (*entry.contest, entry.competitor)]
        sections.setdefault(entry.contest, {}).setdefault(entry.competitor, names).extend(_cells(entry))
    rows = tuple(tuple(tuple(row) for row in section.values()) for section in sections.values())
    table = Table(name, title, f"{caption} {RANKED}", tuple(columns), rows)
    return Sheet(name, [_record(entry, heads) for entry in of], table)


def rankings_sheet(
    name: str, title: str, heads: Sequence[str], of: Sequence[Entry], shown: Names = method_title
) -> Sheet:
    """For every contest and metric our order and the paper's, best first, and whether they agree."""
    found = rankings(of)
    rows = tuple(
        (
            *(words(shown(part)) for part in each.contest),
            words(each.metric.heading),
            words(order(each.ours, shown)),
            words(order(each.paper, shown)),
            words(VERDICTS[each.agreement]),
        )
        for each in found
    )
    agree = sum(each.agreement == "yes" for each in found)
    best = sum(each.agreement != "no" for each in found)
    caption = (
        f"Best first; equal methods are joined by =. The order is the paper's in {agree} of {len(found)} rankings, "
        f"the best is in {best}; a tie contradicts no order. Where printed means are equal, the paper's marks decide."
    )
    headings = (*heads[:-1], "Metric", "Ours", "Paper", "Agree")
    columns = tuple(Column(h, numeric=False, listing=h in ("Ours", "Paper")) for h in headings)
    table = Table(name, title, caption, columns, (rows,) if rows else ())
    return Sheet(name, [_ranking_record(each, heads) for each in found], table)


def order(places: Sequence[Sequence[str]], shown: Names = method_title) -> str:
    """For example "FedHV, Uniform = FSMGDA, FedCMOO"."""
    return ", ".join(" = ".join(shown(name) for name in place) for place in places)


def paper_cell(value: Printed | None, rank: int | None = None) -> Cell:
    """The paper's number as printed."""
    if value is None:
        return NONE
    return Cell(spread=Spread(value.mean, value.deviation, 0), digits=value.digits, rank=_mark(value, rank))


def _mark(value: Printed, rank: int | None) -> int | None:
    return {"best": 1, "second": 2}.get(value.mark) if rank is not None else None


def _cells(entry: Entry) -> list[Cell]:
    ours = NONE if entry.ours is None else Cell(spread=entry.ours, digits=entry.digits, rank=entry.our_place)
    return [ours, paper_cell(entry.paper, entry.paper_rank), signed(entry.difference, entry.digits)]


def _record(entry: Entry, heads: Sequence[str]) -> dict[str, Any]:
    ours, paper = entry.ours, entry.paper
    return dict(zip(map(_key, heads), (*entry.contest, entry.competitor), strict=True)) | {
        "metric": entry.metric.key,
        "ours_mean": ours.mean if ours else None,
        "ours_std": ours.deviation if ours else None,
        "ours_runs": ours.count if ours else 0,
        "paper_mean": paper.mean if paper else None,
        "paper_std": paper.deviation if paper else None,
        "difference": entry.difference,
        "ours_rank": entry.our_rank,
        "paper_rank": entry.paper_rank,
    }


def _ranking_record(each: Ranking, heads: Sequence[str]) -> dict[str, Any]:
    return dict(zip(map(_key, heads), each.contest, strict=False)) | {
        "metric": each.metric.key,
        "ours": order(each.ours, str),
        "paper": order(each.paper, str),
        "agree": each.agreement,
    }


def _key(head: str) -> str:
    return head.lower().replace(" ", "_")
