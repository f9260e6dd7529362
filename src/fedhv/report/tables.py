"""The tables of a study: the paper's (final metrics, per task, last ten, ablations), fronts, costs, diagnostics."""

from __future__ import annotations

import numpy as np

from fedhv.report.cells import Cell, Column, Table, ranked, words
from fedhv.report.comparison import (
    ACCURACIES,
    METHOD,
    RATES_COLUMN,
    SETTING,
    ReportMetric,
    RunValue,
    by_seed,
    caption_of,
    compared,
    comparison,
    count,
    final,
    labels_of,
    ranking_rule,
    rates_cell,
    rounds_sentence,
    row_of,
    setting_cell,
    spread_of,
    unfinished_sentence,
)
from fedhv.report.diagnostics import costs, references
from fedhv.report.differences import differences
from fedhv.report.escape import latex_text
from fedhv.report.fronts import fronts
from fedhv.report.groups import ReportSweep, StudyData, method_title
from fedhv.report.missing import missing_labels
from fedhv.report.rates import HEADING as RATES
from fedhv.report.rates import every_rate
from fedhv.report.scores import accuracies_only, main_scores, over_clients, relative
from fedhv.report.skew import skew_over_clients
from fedhv.report.variants import value_text

LAST = 10


def tables(study: StudyData) -> list[Table]:
    """All tables that have rows."""
    judged = accuracies_only(study)
    others = (
        over_clients,
        fronts,
        front_points,
        ablations,
        learning_rates,
        references,
        missing_labels,
        skew_over_clients,
        costs,
    )
    made = [
        main(judged),
        *(make(study) for make in (relative, main_scores, loss)),
        *(make(judged) for make in (differences, per_task, last_ten)),
        *(make(study) for make in others),
    ]
    return [table for table in made if table.sections]


def main(study: StudyData) -> Table:
    """MeanAcc and WorstAcc."""
    return comparison(study, "main", "Mean and worst accuracy", "Final MeanAcc and WorstAcc (%)", ACCURACIES)


def loss(study: StudyData) -> Table:
    """MeanLoss and HV."""
    metrics = (
        ReportMetric("MeanLoss", final("mean_loss"), False, 3, "Loss"),
        ReportMetric("HV", final("hypervolume"), True, 2, "HV"),
    )
    what = "Final mean loss and hypervolume against the common evaluation reference"
    return comparison(study, "loss-hv", "Loss and hypervolume", what, metrics)


def last_ten(study: StudyData) -> Table:
    """MeanAcc and WorstAcc averaged over the last ten evaluations."""

    def last(name: str) -> RunValue:
        return lambda run: float(np.mean(run.evaluations.values(name)[-LAST:]))

    metrics = (
        ReportMetric("MeanAcc %", last("mean_accuracy"), True, 2, "Mean"),
        ReportMetric("WorstAcc %", last("worst_accuracy"), True, 2, "Worst"),
    )
    fewest = min((len(run.evaluations) for s in study.settings for g in s.groups for run in g.counted), default=LAST)
    less = f" (all, where a run has fewer: the shortest has {fewest})" if fewest < LAST else ""
    what = f"Accuracies (%) averaged over the last ten evaluations of every run{less}"
    return comparison(study, "last-ten", "Last ten evaluations", what, metrics, rounds_sentence(compared(study)))


def per_task(study: StudyData) -> Table:
    """Accuracy and loss of every task; methods side by side."""
    labels, several = labels_of(study), len(study.settings) > 1
    columns = (
        *([SETTING] if several else []),
        Column("Task", numeric=False),
        *(Column(label, "Accuracy %", True) for label in labels),
        *(Column(label, "Loss", False) for label in labels),
    )
    sections = []
    for setting in study.settings:
        by_label = {group.label: group for group in setting.groups if group.counted}
        rows = []
        for i, task in enumerate(setting.tasks if by_label else ()):
            names = (setting_cell(setting.name), words(task)) if several else (words(task),)
            accuracy = row_of(by_label, labels, ReportMetric("Accuracy %", final(f"accuracy.{i}"), True, 2))
            rows.append(
                (*names, *accuracy, *row_of(by_label, labels, ReportMetric("Loss", final(f"loss.{i}"), False, 3)))
            )
        if rows:
            sections.append(tuple(rows))
    caption = caption_of("Final accuracy and loss of every task", study, every_rate(study))
    return Table("per-task", "Per task", caption, columns, tuple(sections))


def learning_rates(study: StudyData) -> Table:
    """The learning rates of every method in every setting, where there are several settings."""
    labels = labels_of(study)
    rows = []
    for setting in study.settings if len(study.settings) > 1 else ():
        by_label = {group.label: group for group in setting.groups if group.counted}
        cells = (rates_cell(by_label[label]) if label in by_label else Cell("–") for label in labels)
        rows.append((setting_cell(setting.name), *cells))
    columns = (SETTING, *(Column(label, numeric=False, listing=True) for label in labels))
    caption = f"Server and local learning rate {RATES} of every method."
    return Table("learning-rates", "Learning rates", caption, columns, (tuple(rows),) if rows else ())


def ablations(study: StudyData) -> Table:
    """One method with one hyper-parameter varied."""
    caption = "One hyper-parameter varied, {spread}. {ranking} Ranks are within each ablation."
    return _varied(study, "ablations", "Ablations", caption, points=False)


def front_points(study: StudyData) -> Table:
    """The points of fronts: one method along its preferences or its knob."""
    caption = "The points of fronts, {spread}. {ranking} Ranks are within each front."
    return _varied(study, "front-points", "Points of fronts", caption, points=True)


def _varied(study: StudyData, name: str, title: str, caption: str, points: bool) -> Table:
    metrics = (
        ReportMetric("MeanAcc %", final("mean_accuracy"), True, 2),
        ReportMetric("WorstAcc %", final("worst_accuracy"), True, 2),
        ReportMetric("MeanLoss", final("mean_loss"), False, 4),  # four digits, so that rounded values are rarely equal
        ReportMetric("HV", final("hypervolume"), True, 2),
    )
    found = [(each, sweep) for each in study.settings for sweep in each.sweeps if sweep.of_points is points]
    sections = [_ablation(setting_cell(setting.name), sweep, metrics) for setting, sweep in found]
    what = Column("Front" if points else "Ablation", numeric=False)
    heads = (SETTING, METHOD, what, Column("Variant", numeric=False))
    columns = (*heads, RATES_COLUMN, *(metric.column for metric in metrics), Column("Runs"))
    shown = [group for _, sweep in found for group in sweep.groups]
    caption = caption.format(spread=spread_of(shown), ranking=ranking_rule(shown))
    caption = " ".join(filter(None, (caption, unfinished_sentence(shown))))
    return Table(name, title, caption, columns, tuple(sections))


def _ablation(setting: Cell, sweep: ReportSweep, metrics: tuple[ReportMetric, ...]) -> tuple[tuple[Cell, ...], ...]:
    cells = [
        ranked({i: by_seed(group, m.value) for i, group in enumerate(sweep.groups)}, m.higher, m.digits)
        for m in metrics
    ]
    rows = []
    for i, (value, group) in enumerate(zip(sweep.values, sweep.groups, strict=True)):
        star = "*" if group.unfinished else ""
        variant = words(
            sweep.factor.of(value) + star, sweep.factor.latex_of(latex_text(value_text(value), math=True)) + star
        )
        names = (setting, words(method_title(sweep.method)), words(sweep.factor.title), variant)
        rows.append((*names, rates_cell(group), *(column[i] for column in cells), count(group)))
    return tuple(rows)
