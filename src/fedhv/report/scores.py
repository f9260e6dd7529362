"""Tables of main metrics: relative to single-task training, per task, and over clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedhv.protocol.evaluation import ACCURACY, Evaluation, MainScore, OverClients
from fedhv.report.cells import Cell, Column, Table, words
from fedhv.report.comparison import (
    METHOD,
    SETTING,
    ReportMetric,
    RunValue,
    caption_of,
    compared,
    comparison,
    evaluation_of,
    labels_of,
    name_of,
    row_of,
    selection_of,
    setting_cell,
)
from fedhv.report.groups import SettingStudy, StudyData
from fedhv.report.reading import RunData
from fedhv.report.relative import SINGLE_TASK, delta_m, mean_ranks, worst_change
from fedhv.runs.defaults import BASELINES


def by_accuracy(setting: SettingStudy) -> bool:
    """Whether every task of the setting is judged by its accuracy, as in the paper."""
    found = [evaluation_of(run) for group in setting.all_groups for run in group.counted[:1]]
    return all(each is None or each.by_accuracy for each in found)


def accuracies_only(study: StudyData) -> StudyData:
    """The settings of a study whose tasks are judged by accuracies."""
    return replace(study, settings=tuple(each for each in study.settings if by_accuracy(each)))


def _metrics_only(study: StudyData) -> StudyData:
    return replace(study, settings=tuple(each for each in study.settings if not by_accuracy(each)))


def relative(study: StudyData) -> Table:
    """Δm, the worst task relative to its own baseline, and the mean rank; Δm needs the single-task baseline."""
    study = _metrics_only(study)
    evaluations: dict[tuple[str, int, str], Evaluation] = {}
    where = {id(run): (s.name, run.seed, g.label) for s in study.settings for g in s.groups for run in g.counted}
    kinds = {g.label: g.method for s in study.settings for g in s.groups}
    for group in compared(study):
        for run in group.counted:
            found = evaluation_of(run)
            if found is not None:
                evaluations[where[id(run)]] = found
    ranks: dict[tuple[str, int, str], float] = {}
    for place in {(setting, seed) for setting, seed, _ in evaluations}:
        here = {key: each for key, each in evaluations.items() if key[:2] == place and kinds[key[2]] not in BASELINES}
        ranks |= mean_ranks(here)
    alone = {key[:2]: each for key, each in evaluations.items() if kinds[key[2]] == SINGLE_TASK}

    def against(worst: bool) -> RunValue:
        def of(run: RunData) -> float | None:
            key = where[id(run)]
            base = alone.get(key[:2])
            if base is None or key not in evaluations:
                return None
            return (worst_change if worst else delta_m)(evaluations[key], base)

        return of

    metrics = [
        ReportMetric("Δm %", against(worst=False), True, 2, "Δm"),
        ReportMetric("Worst task %", against(worst=True), True, 2, "Worst"),
        ReportMetric("Mean rank", lambda run: ranks.get(where[id(run)]), False, 2, "Rank"),
    ]
    if not alone:
        metrics = metrics[2:]
    what = (
        "Mean relative change of the tasks' main metrics to single-task training (Δm), that of the worst task, and the "
        "mean rank among methods"
        if alone
        else "Mean rank among methods over the tasks' main metrics (Δm needs the single-task baseline)"
    )
    title = "Relative to single-task training" if alone else "Mean rank"
    return comparison(study, "relative", title, what, metrics)


def main_scores(study: StudyData) -> Table:
    """Every task's main metric; methods side by side."""
    study = _metrics_only(study)
    labels, several = labels_of(study), len(study.settings) > 1
    heads = (*([SETTING] if several else []), Column("Task", numeric=False), Column("Metric", numeric=False))
    sections = []
    for setting in study.settings:
        by_label = {group.label: group for group in setting.groups if group.counted}
        rows = []
        for i, task in enumerate(setting.tasks if by_label else ()):
            score = score_of(setting, i)
            if score is None:
                continue
            unit = " %" if score.name == ACCURACY else ""
            names = [words(task), words(f"{score.name}{unit} {'↑' if score.higher else '↓'}", _latex(score, unit))]
            row = row_of(
                by_label, labels, ReportMetric(score.name, main_value(i, score.name), score.higher, score.digits)
            )
            rows.append((*([setting_cell(setting.name)] if several else []), *names, *row))
        if rows:
            sections.append(tuple(rows))
    caption = caption_of("The main metric of every task", study, "↑: higher is better, ↓: lower.")
    return Table("main-metrics", "Main metrics", caption, (*heads, *map(Column, labels)), tuple(sections))


def _latex(score: MainScore, unit: str) -> str:
    arrow = "$\\uparrow$" if score.higher else "$\\downarrow$"
    return f"{score.name.replace('_', chr(92) + '_')}{unit.replace('%', chr(92) + '%')} {arrow}"


def mains_of(setting: SettingStudy) -> list[MainScore] | None:
    """What every task is judged by; None where all are judged by accuracies, or nothing is known yet."""
    if by_accuracy(setting):
        return None
    found = [score_of(setting, i) for i in range(len(setting.tasks))]
    known = [score for score in found if score is not None]
    return known if len(known) == len(found) else None


def common_main(mains: Sequence[MainScore]) -> MainScore | None:
    """The main score that all tasks have in common; None where tasks are judged by different ones."""
    return mains[0] if len({(score.name, score.better) for score in mains}) == 1 else None


def score_of(setting: SettingStudy, i: int) -> MainScore | None:
    """Name and direction of what a task is judged by, with a value; None before the first evaluation."""
    for group in setting.all_groups:
        for run in group.counted:
            found = evaluation_of(run)
            if found is not None and i < len(found.tasks):
                return found.tasks[i].main
    return None


def main_value(i: int, name: str) -> RunValue:
    """The main score of a task at the kept model; None where the task is judged by something else."""

    def of(run: RunData) -> float | None:
        found = evaluation_of(run)
        main = found.tasks[i].main if found is not None and i < len(found.tasks) else None
        return main.value if main is not None and main.name == name else None

    return of


def over_clients(study: StudyData) -> Table:
    """The kept models on the examples that clients hold out: mean, worst tenth and spread over clients."""
    sections = []
    for setting in study.settings:
        by_label = {group.label: group for group in setting.groups if group.counted}
        rows: list[tuple[Cell, ...]] = []
        for task in setting.tasks:
            found = [each for g in by_label.values() for run in g.counted for each in _at_clients(run, task)]
            if not found:
                continue
            score, higher = found[0].score, found[0].better == "higher"
            digits = MainScore(score, found[0].mean, found[0].better).digits
            cells = [
                row_of(by_label, list(by_label), ReportMetric(key, _spread(task, key, score), better, digits))
                for key, better in (("mean", higher), ("worst_decile", higher), ("deviation", False), ("clients", None))
            ]
            for i, group in enumerate(by_label.values()):
                if cells[0][i].spread is not None:
                    numbers = [*(column[i] for column in cells[:3]), replace(cells[3][i], digits=0, exact=True)]
                    rows.append((setting_cell(setting.name), words(task), words(score), name_of(group), *numbers))
        if rows:
            sections.append(tuple(rows))
    heads = (SETTING, Column("Task", numeric=False), Column("Metric", numeric=False), METHOD)
    counted = (Column("Mean"), Column("Worst decile"), Column("Deviation"), Column("Clients"))
    what = (
        "The kept models on the examples that every client holds out: the mean over clients, the mean over the worst "
        "tenth of them, and the deviation between them"
    )
    caption = caption_of(what, study)
    return Table("over-clients", "Over clients", caption, (*heads, *counted), tuple(sections))


def _at_clients(run: RunData, task: str) -> list[OverClients]:
    selection = selection_of(run)
    return [] if selection is None else [each for each in selection.over_clients if each.task == task]


def _spread(task: str, key: str, score: str) -> RunValue:
    def of(run: RunData) -> float | None:
        for each in _at_clients(run, task):
            if each.score == score:
                value = getattr(each, key)
                return None if value is None else float(value)
        return None

    return of
