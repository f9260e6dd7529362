"""Comparison of methods: the common parts of a study's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedhv.protocol.evaluation import Evaluation, mixed_scores
from fedhv.report.cells import Cell, Column, Table, ranked, words
from fedhv.report.escape import latex_text
from fedhv.report.groups import Group, StudyData, method_rank, setting_title
from fedhv.report.ranking import ONE_SEED, RULE
from fedhv.report.rates import HEADING as RATES
from fedhv.report.rates import group_rates, study_sentence
from fedhv.report.reading import RunData
from fedhv.runs.fingerprint import NO_TEST
from fedhv.runs.folder import FINGERPRINT
from fedhv.runs.selected import Selected
from fedhv.support.errors import InputError
from fedhv.support.wording import joined

SETTING, METHOD = Column("Setting", numeric=False), Column("Method", numeric=False)
RATES_COLUMN = Column(RATES, numeric=False, listing=True)
WIDE_UP_TO = 6
"""Up to this number of methods, several settings make one wide table like the paper's; with more, a long one."""

RunValue = Callable[[RunData], float | None]
"""A number of a run, or None."""


@dataclass(frozen=True)
class ReportMetric:
    """A column of numbers: its heading, the value of one run, which direction is better, and how many digits.

    Attributes:
        heading: The heading in a list of methods.
        value: The value of one run.
        higher: Whether more is better; None if neither direction is better.
        digits: Digits after the decimal point.
        short: The heading under a method's name, in tables with methods side by side.
        group: The heading above the heading.
    """

    heading: str
    value: RunValue
    higher: bool | None
    digits: int
    short: str = ""
    group: str = ""

    @property
    def column(self) -> Column:
        """The column in a list of methods."""
        return Column(self.heading, self.group, self.higher)


def comparison(
    study: StudyData, name: str, title: str, what: str, metrics: Sequence[ReportMetric], more: str = ""
) -> Table:
    """Methods compared by some metrics: like the paper's main table for several settings, a list for one.

    `more` is a sentence for the caption.
    """
    caption = caption_of(what, study, more, _units(study))
    labels = labels_of(study)
    shown = [(setting, {g.label: g for g in setting.groups if g.counted}) for setting in study.settings]
    shown = [(setting, by_label) for setting, by_label in shown if by_label]
    if len(shown) > 1 and len(labels) <= WIDE_UP_TO:
        heads = [*((metric.short, metric.higher, False) for metric in metrics), (RATES, None, True)]
        wide = [Column(head, label, higher, aside=aside) for label in labels for head, higher, aside in heads]
        section = []
        for setting, by_label in shown:
            rates = [rates_cell(by_label[label]) if label in by_label else Cell("–") for label in labels]
            cells = [*(row_of(by_label, labels, metric) for metric in metrics), rates]
            section.append((setting_cell(setting.name), *(column[i] for i in range(len(labels)) for column in cells)))
        return Table(name, title, caption, (SETTING, *wide), (tuple(section),))
    columns = (SETTING, METHOD, RATES_COLUMN, *(metric.column for metric in metrics), Column("Runs"))
    sections = []
    for setting, by_label in shown:
        cells = [row_of(by_label, list(by_label), metric) for metric in metrics]
        rows = [
            (
                setting_cell(setting.name),
                name_of(group),
                rates_cell(group),
                *(column[i] for column in cells),
                count(group),
            )
            for i, group in enumerate(by_label.values())
        ]
        sections.append(tuple(rows))
    return Table(name, title, caption, columns, tuple(sections))


def row_of(by_label: Mapping[str, Group], labels: Sequence[str], metric: ReportMetric) -> list[Cell]:
    """One metric of every method that has runs, with ranks; baselines are not ranked."""
    values = {label: by_seed(group, metric.value) for label, group in by_label.items()}
    methods = {label: each for label, each in values.items() if not by_label[label].baseline}
    others = {label: each for label, each in values.items() if by_label[label].baseline}
    found = ranked(methods, metric.higher, metric.digits) | ranked(others, None, metric.digits)
    return [found.get(label, Cell("–")) for label in labels]


def final(metric: str) -> RunValue:
    """The evaluation of the kept model, or the last one of a run that has not finished."""

    def of(run: RunData) -> float | None:
        if run.evaluations.lacks(metric):
            return None
        tested = run.summary
        if tested is None:
            return float(run.evaluations.values(metric)[-1])
        kind, _, task = metric.partition(".")
        return float(getattr(tested.tasks[int(task)] if task else tested, kind))

    return of


def selection_of(run: RunData) -> Selected | None:
    """How a finished run chose its model, if it did."""
    return None if run.summary is None else run.summary.selection


def evaluation_of(run: RunData) -> Evaluation | None:
    """The evaluation of the kept model, or the last one of a run that has not finished."""
    if run.summary is not None:
        return run.summary
    try:
        return next((round.evaluation for round in reversed(run.record.rounds) if round.evaluation is not None), None)
    except InputError:
        return None


ACCURACIES = (
    ReportMetric("MeanAcc %", final("mean_accuracy"), True, 2, "Mean"),
    ReportMetric("WorstAcc %", final("worst_accuracy"), True, 2, "Worst"),
)
"""The first metric of a comparison."""


def values_of(group: Group, value: RunValue) -> list[float]:
    """The values of the counted runs that have one."""
    return [number for run in group.counted if (number := value(run)) is not None]


def by_seed(group: Group, value: RunValue) -> dict[int, float]:
    """The values of the counted runs that have one, by seed."""
    return {run.seed: number for run in group.counted if (number := value(run)) is not None}


def ranking_rule(groups: Iterable[Group]) -> str:
    """What bold and underlined mean in a table of these groups, for its caption."""
    return RULE if any(len(group.counted) > 1 for group in groups) else ONE_SEED


def caption_of(what: str, study: StudyData, *more: str) -> str:
    """The caption of a table that compares methods: its numbers, its ranking and the learning rates."""
    groups = compared(study)
    said = (
        f"{what}, {spread_of(groups)}.",
        ranking_rule(groups),
        *more,
        mixed_sentence(study),
        held_out_sentence(groups),
        unfinished_sentence(groups),
        study_sentence(study),
    )
    return " ".join(filter(None, said))


def held_out_sentence(groups: Iterable[Group]) -> str:
    """Whose scores are not those of test examples."""
    runs = [run for group in groups for run in group.counted]
    without = [run for run in runs if _untested(run)]
    tested = [run for run in runs if not _untested(run)]
    held = [run for run in tested if run.record.table("setting", "evaluation").get("on") == "validation"]
    said = []
    if without:
        names = joined(list(dict.fromkeys(setting_title(run.setting) for run in without)))
        whose = f"Scores of {names}" if tested else "Scores"
        said.append(f"{whose} are those on the examples that clients hold out: there are no test examples.")
    if held:
        whose = "Scores" if len(held) == len(runs) else "Scores of runs with `evaluation.on = 'validation'`"
        said.append(f"{whose} are those on the examples that clients hold out, not on the test examples.")
    return " ".join(said)


def _untested(run: RunData) -> bool:
    return bool(run.record.table(FINGERPRINT).get("test") == NO_TEST)


def rounds_sentence(groups: Iterable[Group]) -> str:
    """That rounds are evaluated on other examples than the kept models of these groups, where they are."""
    found = (selection_of(run) for group in groups for run in group.counted if not _untested(run))
    if not any(each is not None and each.validation is not None for each in found):
        return ""
    return (
        "Rounds are evaluated on the examples that clients hold out; the kept models of finished runs are tested on "
        "the test examples, if there are any."
    )


def mixed_sentence(study: StudyData) -> str:
    """Where MeanAcc and WorstAcc are over scores that cannot be compared."""
    said = []
    for setting in study.settings:
        run = next((run for run in setting.runs if len(run.scored) == len(setting.tasks)), None)
        text = mixed_scores(dict(zip(setting.tasks, run.scored, strict=True))) if run is not None else ""
        named = f"{setting_title(setting.name)}: " if len(study.settings) > 1 else ""
        said += [named + text] if text else []
    return " ".join(said)


def compared(study: StudyData) -> list[Group]:
    """The compared groups of all settings: methods, and variants that belong to no ablation."""
    return [group for setting in study.settings for group in setting.groups if group.counted]


def labels_of(study: StudyData) -> list[str]:
    """The labels of all compared groups of all settings, in order."""
    groups = compared(study)
    groups.sort(key=lambda group: (method_rank(group.method), len(group.variant)))
    return list(dict.fromkeys(group.label for group in groups))


def setting_cell(name: str) -> Cell:
    """The setting's cell, named as the paper names it."""
    title = setting_title(name)
    return Cell(title, None if title == name else rf"\textsc{{{latex_text(title)}}}", data=name)


def name_of(group: Group) -> Cell:
    """The method's cell; a star marks unfinished runs."""
    return words(f"{group.label}*" if group.unfinished else group.label)


def rates_cell(group: Group) -> Cell:
    """The learning rates of a row."""
    return words(group_rates(group))


def count(group: Group) -> Cell:
    """The number of counted runs."""
    n = len(group.counted)
    return Cell(str(n), value=n)


def spread_of(groups: Iterable[Group]) -> str:
    """A description of the numbers of a table with these groups, for its caption."""
    found = {tuple(sorted(run.seed for run in group.counted)) for group in groups if group.counted}
    if all(len(seeds) == 1 for seeds in found):
        return f"seed {found.pop()[0]}" if len(found) == 1 else "one run for each line"
    if len(found) > 1:
        return "mean ± sample standard deviation over the runs of each line"
    return f"mean ± sample standard deviation over seeds {', '.join(map(str, found.pop()))}"


def _units(study: StudyData) -> str:
    """A sentence on the units of losses in settings that have any."""
    said = []
    for setting in study.settings:
        ended = [run.summary for run in setting.runs if run.summary is not None]
        units = next((each.loss_units for each in ended if len(each.loss_units) == len(setting.tasks)), ())
        if units:
            pairs = zip(setting.tasks, units, strict=True)
            each = ", ".join(f"{unit:.3g} ({task})" for task, unit in pairs)
            said.append(f"Losses of {setting.name} are in units of {each}.")
    return " ".join(said)


def unfinished_sentence(groups: Iterable[Group]) -> str:
    """Which rows or columns have values of fewer rounds than planned; lists of methods mark them with a star."""
    names = list(dict.fromkeys(f"{group.label}*" for group in groups if group.unfinished))
    has = "has" if len(names) == 1 else "have"
    return f"{joined(names)} {has} not finished: values of the last evaluation so far." if names else ""
