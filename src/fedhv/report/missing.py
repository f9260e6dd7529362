"""A table of missing labels: the labels of every task, and the rounds whose cohort had none."""

from __future__ import annotations

import numpy as np

from fedhv.report.cells import Cell, Column, Table, words
from fedhv.report.comparison import METHOD, SETTING, setting_cell
from fedhv.report.groups import Group, StudyData
from fedhv.report.reading import RunData
from fedhv.runs.participation import Participants
from fedhv.support.errors import InputError


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
        "runs no client of the cohort had any; the last report counted there. –: unknown."
    )
    return Table("labels", "Missing labels", caption, columns, tuple(sections))


def _count(group: Group, i: int) -> Cell:
    known = next((run.labels[i] for run in group.runs if run.labels), None)
    return Cell("–") if known is None else Cell(str(known), value=known)


def _absent(group: Group, i: int) -> Cell:
    found = [_rounds_without(run, i) for run in group.runs if run.done]
    known = [gone for gone in found if gone is not None]
    if not known or len(known) < len(found):
        return Cell("–")
    return Cell(f"{sum(known)}/{sum(run.done for run in group.runs)}", value=sum(known))


def _rounds_without(run: RunData, i: int) -> int | None:
    """As the history says. Without reports it may not: then from who took part and who has labels, if that is known."""
    rounds = run.rounds
    if np.isfinite(rounds.report).any() or np.nansum(rounds.absent):
        return int(np.nansum(rounds.absent[:, i]))
    owners = {client for client, row in enumerate(run.client_labels) if row[1 + i] > 0}
    try:
        taken = [Participants.of(played) for played in run.record.rounds] if owners else []
    except InputError:  # the history is damaged
        return None
    if not taken or any(each is None for each in taken):
        return None
    return sum(owners.isdisjoint(each.taken) for each in taken if each is not None)
