"""Paired differences between methods, seed by seed, with confidence intervals.

Runs with the same seed start from the same model. With equal numbers of participants they also have the same cohorts.
An effect of the seed that is common to all methods cancels in the difference.
"""

from __future__ import annotations

import math

from fedhv.report.cells import MINUS, Cell, Column, Table, words
from fedhv.report.comparison import ACCURACIES, SETTING, ReportMetric
from fedhv.report.escape import latex_text
from fedhv.report.groups import Group, StudyData
from fedhv.support.statistics import Paired


def differences(study: StudyData) -> Table:
    """Every pair of methods that have at least two seeds in common."""
    sections = []
    for setting in study.settings:
        groups = [group for group in setting.groups if group.counted and not group.unfinished]
        # The last in order, usually FedHV, minus each of the others.
        pairs = [(groups[i], groups[j]) for i in reversed(range(len(groups))) for j in range(i)]
        rows = [_row(words(setting.name), *pair) for pair in pairs]
        sections.append(tuple(row for row in rows if row is not None))
    columns = (SETTING, Column("Methods", numeric=False), *(Column(m.heading) for m in ACCURACIES), Column("Seeds"))
    title = "Differences by seed, with 95 % confidence intervals"
    caption = (
        "Final accuracies of runs with the same seed, subtracted: the mean difference in points, and Student's 95 % "
        "confidence interval for it. Bold if the interval excludes 0; among many comparisons some do so by chance."
    )
    return Table("differences", title, caption, columns, tuple(section for section in sections if section))


def _row(setting: Cell, minuend: Group, subtrahend: Group) -> tuple[Cell, ...] | None:
    found = [_paired(minuend, subtrahend, metric) for metric in ACCURACIES]
    seeds = max((paired.count for paired in found if paired is not None), default=0)
    if not seeds:
        return None
    one, other = minuend.label, subtrahend.label
    names = words(f"{one} {MINUS} {other}", f"{latex_text(one)} $-$ {latex_text(other)}")
    cells = [_cell(paired, metric.digits) for paired, metric in zip(found, ACCURACIES, strict=True)]
    return (setting, names, *cells, Cell(str(seeds), value=seeds))


def _paired(minuend: Group, subtrahend: Group, metric: ReportMetric) -> Paired | None:
    """None if fewer than two seeds have finite values of both."""
    first, second = _by_seed(minuend, metric), _by_seed(subtrahend, metric)
    common = [first[seed] - second[seed] for seed in first if seed in second]
    return Paired.of(common) if len(common) > 1 else None


def _by_seed(group: Group, metric: ReportMetric) -> dict[int, float]:
    values = {run.seed: metric.value(run) for run in group.counted}
    return {seed: value for seed, value in values.items() if value is not None and math.isfinite(value)}


def _cell(paired: Paired | None, digits: int) -> Cell:
    if paired is None:
        return Cell("–")
    return Cell(paired=paired, digits=digits, rank=1 if paired.clear else None)
