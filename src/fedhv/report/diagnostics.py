"""Tables about the course of runs: the reference, communication and time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from fedhv.report.cells import Cell, Column, Table, words
from fedhv.report.clock import clock_of
from fedhv.report.comparison import (
    METHOD,
    RATES_COLUMN,
    SETTING,
    ReportMetric,
    compared,
    name_of,
    ranking_rule,
    rates_cell,
    row_of,
    setting_cell,
    spread_of,
)
from fedhv.report.groups import Group, StudyData
from fedhv.report.reading import RunData
from fedhv.report.sizes import megabyte_digits

DAGGER = "†"
SHARED = f"{DAGGER} Shared clock: runs that were computed together have equal parts of one time, which is not ranked."
ESTIMATED = (
    "Version 0.1 did not record compilation: rounds of more than ten times the median count as median rounds, so do "
    "those of the calibration, and the rest is the estimated compilation."
)
SHOWN = 8
"""The largest number of values of a reference that are printed."""


def references(study: StudyData) -> Table:
    """How close the reports came to the reference."""
    sections = []
    for setting in study.settings:
        rows = []
        for group in setting.all_groups:
            runs = [run for run in group.runs if np.isfinite(run.rounds.slack).any()]
            if runs:
                rows.append((setting_cell(setting.name), words(group.label), rates_cell(group), *_diagnostics(runs)))
        if rows:
            sections.append(tuple(rows))
    columns = (
        SETTING,
        METHOD,
        RATES_COLUMN,
        Column("Reference", numeric=False, listing=True),
        Column("Minimum report slack"),
        Column("Floor activations"),
        Column("Calibration rounds"),
        Column("Margin"),
    )
    caption = (
        "The frozen training reference, the smallest slack of any task in any round of any run, and how often the "
        "floor of the slacks was used, out of all tasks, rounds and runs. The slack is that of the reported losses: a "
        "practical diagnostic, not the condition of the theory."
    )
    return Table("reference", "Reference diagnostics", caption, columns, tuple(sections))


def _diagnostics(runs: Sequence[RunData]) -> Iterator[Cell]:
    reference = runs[0].reference
    least = min(float(np.nanmin(run.rounds.slack)) for run in runs)
    floored = int(sum(np.nansum(run.rounds.floored) for run in runs))
    chances = sum(run.done * run.rounds.slack.shape[1] for run in runs)
    values = [f"{value:.6f}" for value in reference.values] if reference else []
    more = [f"… {len(values) - SHOWN} more"] if len(values) > SHOWN else []
    yield Cell(f"({', '.join(values[:SHOWN] + more)})" if values else "–")
    yield Cell(f"{least:.4f}", value=least)
    yield Cell(f"{floored}/{chances}", value=floored)
    if reference is not None and reference.provenance.calibrated:
        yield Cell(str(reference.cost.rounds), value=reference.cost.rounds)
        yield Cell(f"{reference.provenance.margin:g}", value=reference.provenance.margin)
    else:
        yield Cell("given")
        yield Cell("–")


def costs(study: StudyData) -> Table:
    """Bytes and seconds, calibration included."""
    groups = compared(study)
    runs = [run for group in groups for run in group.counted]
    metrics: tuple[ReportMetric, ...] = (
        _megabytes("Down MB", lambda run: _sum(run.rounds.down) / run.done, None, 3, "Per round", runs),
        _megabytes("Up MB", lambda run: _sum(run.rounds.up) / run.done, None, 3, "Per round", runs),
        ReportMetric("Exchanges", _exchanges, None, 0, group="Per round"),
        ReportMetric("s", lambda run: _rounds_seconds(run) / run.done, None, 3, group="Per round"),
        _megabytes("MB", lambda run: run.calibration_bytes, None, 1, "Calibration", runs),
        ReportMetric("s", lambda run: clock_of(run).calibration, None, 1, group="Calibration"),
        _megabytes("MB", _total_bytes, False, 1, "Total", runs),
        ReportMetric("s", lambda run: clock_of(run).total, False, 1, group="Total"),
    )
    if any(map(_warm_up, runs)):
        metrics = (*metrics, ReportMetric("s", _warm_up, None, 1, group="Compilation"))
    estimated = any(clock_of(run).estimated for run in runs)
    sections = []
    for setting in study.settings:
        by_label = {group.label: group for group in setting.groups if group.counted}
        together = any(_shared(group) for group in by_label.values())
        # Times on one clock are equal parts of it: nothing is faster.
        judged = [replace(m, higher=None) if together and m.heading == "s" else m for m in metrics]
        cells = [row_of(by_label, list(by_label), metric) for metric in judged]
        rows = []
        for i, group in enumerate(by_label.values()):
            own = [_cell(column[i], metric, group) for column, metric in zip(cells, metrics, strict=True)]
            rows.append((setting_cell(setting.name), name_of(group), rates_cell(group), *own))
        if rows:
            sections.append(tuple(rows))
    columns = (SETTING, METHOD, RATES_COLUMN, *(metric.column for metric in metrics))
    caption = (
        "Communication of the server with all clients of a round (1 MB = 10⁶ bytes) and wall-clock time, "
        f"{spread_of(groups)}; totals include calibration{', not compilation' if len(metrics) > 8 else ''}. "
        f"{f'{ESTIMATED} ' if estimated else ''}"
        f"{ranking_rule(groups)}{f' {SHARED}' if any(map(_shared, groups)) else ''}"
    )
    return Table("costs", "Communication and time", caption, columns, tuple(sections))


def _cell(cell: Cell, metric: ReportMetric, group: Group) -> Cell:
    if metric.group == "Calibration" and not any(run.reference for run in group.counted):
        return Cell("–")
    if metric.heading == "s" and cell.spread is not None and _shared(group):
        return replace(cell, spread=replace(cell.spread, deviation=None), rank=None, mark=DAGGER)
    return replace(cell, exact=True)


def _shared(group: Group) -> bool:
    """Whether runs of it were computed together with others."""
    return any(run.clock_is_shared for run in group.counted)


def _rounds_seconds(run: RunData) -> float:
    return float(clock_of(run).seconds.sum())


def _warm_up(run: RunData) -> float:
    clock = clock_of(run)
    return float(clock.compiling.sum()) + clock.calibration_compiling


def _total_bytes(run: RunData) -> float:
    return _sum(run.rounds.down, run.rounds.up) + run.calibration_bytes


def _megabytes(
    heading: str,
    count: Callable[[RunData], float],
    higher: bool | None,
    least: int,
    group: str,
    runs: Sequence[RunData],
) -> ReportMetric:
    """Bytes as MB, with as many digits as the smallest number needs."""
    digits = megabyte_digits(map(count, runs), least)
    return ReportMetric(heading, lambda run: count(run) / 1e6, higher, digits, group=group)


def _exchanges(run: RunData) -> float | None:
    """The mean per round; None for a run with a summary only."""
    known = run.rounds.exchanges[np.isfinite(run.rounds.exchanges)]
    return float(known.mean()) if len(known) else None


def _sum(*columns: np.ndarray) -> float:
    return float(sum(np.nansum(column) for column in columns))
