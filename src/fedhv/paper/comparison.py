"""Comparison of our numbers with the paper's: the difference, and whether the order of methods is the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from fedhv.paper.published import Contest, Printed
from fedhv.report.ranking import standing
from fedhv.support.statistics import Spread, ranks

Agreement = Literal["yes", "best", "no"]
"""Whether the whole order equals the paper's, only the best, or neither."""

MARKS = ("best", "second", "")


@dataclass(frozen=True)
class PaperMetric:
    """A metric: its name in tables and files, and whether more is better (None: neither)."""

    key: str
    heading: str
    higher: bool | None
    digits: int = 2


@dataclass(frozen=True)
class Entry:
    """One number of one competitor, ours and the paper's; either may be missing.

    Ranks are by means. `our_place` is 1 for the best and 2 for what is level with the best mean, by paired differences
    over seeds.
    """

    contest: Contest
    competitor: str
    metric: PaperMetric
    ours: Spread | None = None
    paper: Printed | None = None
    our_rank: int | None = None
    paper_rank: int | None = None
    our_place: int | None = None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.ours is None or self.paper is None else self.ours.mean - self.paper.mean

    @property
    def digits(self) -> int:
        """The number of digits that the paper prints."""
        return self.metric.digits if self.paper is None else self.paper.digits


@dataclass(frozen=True)
class Ranking:
    """The competitors with both numbers, best first; equal ones share a place."""

    contest: Contest
    metric: PaperMetric
    ours: tuple[tuple[str, ...], ...]
    paper: tuple[tuple[str, ...], ...]
    agreement: Agreement


def paper_ranks(values: Mapping[str, Printed], higher: bool) -> dict[str, int]:
    """1 for the best: by the printed means, for equal means by the paper's marks, otherwise a shared rank."""
    keys = {name: ((-value.mean if higher else value.mean), MARKS.index(value.mark)) for name, value in values.items()}
    ordered = sorted(keys.values())
    return {name: 1 + ordered.index(key) for name, key in keys.items()}


def entries(
    contest: Contest,
    metric: PaperMetric,
    ours: Mapping[str, Spread | None],
    paper: Mapping[str, Printed | None],
    seeds: Mapping[str, Mapping[int, float]] | None = None,
) -> list[Entry]:
    """One entry for every competitor of either. Our ranks are by unrounded means, our places by values of `seeds`."""
    our_means = {name: each.mean for name, each in ours.items() if each is not None and math.isfinite(each.mean)}
    printed = {name: value for name, value in paper.items() if value is not None}
    higher = metric.higher
    first = ranks(our_means, higher) if higher is not None and len(our_means) > 1 else {}
    second = paper_ranks(printed, higher) if higher is not None and len(printed) > 1 else {}
    place = standing(seeds or {}, higher)
    return [
        Entry(
            contest, name, metric, ours.get(name), paper.get(name), first.get(name), second.get(name), place.get(name)
        )
        for name in dict.fromkeys([*paper, *ours])
    ]


def ranking(of: Sequence[Entry]) -> Ranking | None:
    """Whether the order of a contest is the paper's; None if fewer than two are in both, or nothing is ranked."""
    # Diverged runs have no rank.
    mine = [(entry, entry.ours.mean) for entry in of if entry.ours is not None and math.isfinite(entry.ours.mean)]
    both = {entry.competitor: (mean, entry.paper) for entry, mean in mine if entry.paper is not None}
    contest, metric = of[0].contest, of[0].metric
    if len(both) < 2 or metric.higher is None:
        return None
    ours = ranks({name: mean for name, (mean, _) in both.items()}, metric.higher)
    paper = paper_ranks({name: printed for name, (_, printed) in both.items()}, metric.higher)
    return Ranking(contest, metric, places(ours), places(paper), agreement(ours, paper))


def agreement(ours: Mapping[str, int], paper: Mapping[str, int]) -> Agreement:
    """Two orders agree unless they order some pair differently. A tie agrees with both orders."""
    if all((ours[a] - ours[b]) * (paper[a] - paper[b]) >= 0 for a, b in combinations(ours, 2)):
        return "yes"
    best = {name for name in ours if ours[name] == 1} & {name for name in paper if paper[name] == 1}
    return "best" if best else "no"


def places(ranked: Mapping[str, int]) -> tuple[tuple[str, ...], ...]:
    """Names by rank, those of equal rank together."""
    return tuple(tuple(name for name in ranked if ranked[name] == rank) for rank in sorted(set(ranked.values())))


def rankings(of: Sequence[Entry]) -> list[Ranking]:
    """One for every contest and metric that can be ranked."""
    contests: dict[tuple[Contest, str], list[Entry]] = {}
    for entry in of:
        contests.setdefault((entry.contest, entry.metric.key), []).append(entry)
    return [found for found in map(ranking, contests.values()) if found is not None]
