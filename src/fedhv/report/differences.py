"""Paired differences between methods, seed by seed, with confidence intervals.

Runs with the same seed start from the same model. With equal numbers of participants they also have the same cohorts.
An effect of the seed that is common to all methods cancels in the difference.
"""

from __future__ import annotations

from fedhv.report.cells import MINUS, Cell, Column, Table, words
from fedhv.report.comparison import ACCURACIES, RATES_COLUMN, SETTING, by_seed, setting_cell
from fedhv.report.escape import latex_text
from fedhv.report.groups import Group, StudyData
from fedhv.report.ranking import paired
from fedhv.report.rates import group_rates, study_sentence
from fedhv.support.statistics import Paired


def differences(study: StudyData) -> Table:
    """Every pair of methods that have at least two seeds in common."""
    sections = []
    for setting in study.settings:
        groups = [group for group in setting.groups if group.counted and not group.unfinished]
        # The last in order, usually FedHV, minus each of the others.
        pairs = [(groups[i], groups[j]) for i in reversed(range(len(groups))) for j in range(i)]
        pairs = [(b, a) if a.baseline else (a, b) for a, b in pairs if not (a.baseline and b.baseline)]
        rows = [_row(setting_cell(setting.name), *pair) for pair in pairs]
        sections.append(tuple(row for row in rows if row is not None))
    names = (SETTING, Column("Methods", numeric=False), RATES_COLUMN)
    columns = (*names, *(Column(m.heading) for m in ACCURACIES), Column("Seeds"))
    title = "Differences by seed, with 95 % confidence intervals"
    caption = (
        "Final accuracies of runs with the same seed, subtracted: the mean difference in points, and Student's 95 % "
        "confidence interval for it. Bold if the interval excludes 0; among many comparisons some do so by chance."
    )
    caption = " ".join(filter(None, (caption, study_sentence(study))))
    return Table("differences", title, caption, columns, tuple(section for section in sections if section))


def _row(setting: Cell, minuend: Group, subtrahend: Group) -> tuple[Cell, ...] | None:
    found = [paired(by_seed(minuend, metric.value), by_seed(subtrahend, metric.value)) for metric in ACCURACIES]
    seeds = max((each.count for each in found if each is not None), default=0)
    if not seeds:
        return None
    one, other = minuend.label, subtrahend.label
    names = words(f"{one} {MINUS} {other}", f"{latex_text(one)} $-$ {latex_text(other)}")
    cells = [_cell(each, metric.digits) for each, metric in zip(found, ACCURACIES, strict=True)]
    return (setting, names, _rates(minuend, subtrahend), *cells, Cell(str(seeds), value=seeds))


def _rates(minuend: Group, subtrahend: Group) -> Cell:
    """The rates of both methods, once if they are the same."""
    return words("; ".join(dict.fromkeys(map(group_rates, (minuend, subtrahend)))))


def _cell(difference: Paired | None, digits: int) -> Cell:
    if difference is None:
        return Cell("–")
    return Cell(paired=difference, digits=digits, rank=1 if difference.clear else None)
