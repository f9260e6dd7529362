"""A table of missing labels: the labels of every task, and the rounds whose cohort had none."""

from __future__ import annotations

import numpy as np

from fedhv.report.cells import Cell, Column, Table, words
from fedhv.report.comparison import METHOD, SETTING, setting_cell
from fedhv.report.groups import Group, StudyData


def missing_labels(study: StudyData) -> Table:
    """The table; it has rows for settings with missing labels only."""
    sections = []
    for setting in study.settings:
        rows = []
        for group in setting.all_groups:
            if not any(run.labels or np.nansum(run.rounds.absent) for run in group.runs):
                continue
            for i, task in enumerate(setting.tasks):
                rows.append(
                    (setting_cell(setting.name), words(group.label), words(task), _count(group, i), _absent(group, i))
                )
        if rows:
            sections.append(tuple(rows))
    columns = (
        SETTING,
        METHOD,
        Column("Task", numeric=False),
        Column("Labels"),
        Column("Rounds without"),
    )
    caption = (
        "Where labels are missing: how many training examples are labelled for a task, and in how many rounds of all "
        "runs no client of the cohort had any; the last report counted there."
    )
    return Table("labels", "Missing labels", caption, columns, tuple(sections))


def _count(group: Group, i: int) -> Cell:
    known = next((run.labels[i] for run in group.runs if run.labels), None)
    return Cell("–") if known is None else Cell(str(known), value=known)


def _absent(group: Group, i: int) -> Cell:
    gone = int(sum(np.nansum(run.rounds.absent[:, i]) for run in group.runs if run.rounds.absent.shape[1] > i))
    return Cell(f"{gone}/{sum(run.done for run in group.runs)}", value=gone)
