"""A table of the label skew over clients, beside what a random draw would give."""

from __future__ import annotations

from fedhv.report.cells import Cell, Column, Table, words
from fedhv.report.comparison import SETTING
from fedhv.report.groups import StudyData


def skew_over_clients(study: StudyData) -> Table:
    """The table; it has rows for settings whose runs recorded the skew."""
    sections = []
    for setting in study.settings:
        known = {run.skew for group in setting.all_groups for run in group.runs if run.skew}
        if len(known) != 1:  # variants with other clients are settings of their own; otherwise nothing was recorded
            continue
        (skew,) = known
        rows = []
        for task, each in zip(setting.tasks, skew, strict=True):
            found, random = (Cell(f"{value:.3f}", value=value) for value in (each.found, each.random))
            rows.append((words(setting.name), words(task), found, random))
        sections.append(tuple(rows))
    columns = (SETTING, Column("Task", numeric=False), Column("Skew"), Column("Random draw"))
    caption = (
        "Label skew over clients: the mean total variation distance between the labels of a client and those of all "
        "clients, and its expected value if every client had drawn its labels at random. Equal numbers mean that the "
        "clients are practically IID for this task."
    )
    return Table("label-skew", "Label skew", caption, columns, tuple(sections))
