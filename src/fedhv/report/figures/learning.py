"""Learning curves: the aggregates of a setting, and every task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from fedhv.report.aggregate import metric_curve
from fedhv.report.figures.drawing import WIDTH, draw, from_zero, legend_above, letters, only, panels
from fedhv.report.groups import SettingStudy
from fedhv.report.palette import Style
from fedhv.support.wording import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOGETHER_UP_TO = 5
"""Up to this number of tasks, accuracy and loss are in one figure; with more they have one figure each."""
COLUMNS = 5
TITLES = {
    "mean_accuracy": "Mean accuracy (%)",
    "worst_accuracy": "Worst-task accuracy (%)",
    "mean_loss": "Mean loss",
    "hypervolume": "Hypervolume",
}
TITLE_LETTER = 0.085
"""Inches of a letter of a title."""
_KINDS = {"accuracy": "Accuracy (%)", "loss": "Loss"}


def aggregates(setting: SettingStudy, styles: Mapping[str, Style]) -> Figure:
    """The four aggregates against the round, mean and one standard deviation over seeds."""
    figure, axes = panels(2, 2, 2.2, sharex=True)
    for each, (metric, title) in zip(axes, TITLES.items(), strict=True):
        for group in setting.groups:
            draw(each, metric_curve(group, metric), styles[group.label], group.label)
        left_out = any(run.evaluations.lacks(metric) for run in setting.runs)
        each.set_title(f"{title} (left out)" if left_out else title)
        from_zero(each)
    for each in axes[2:]:
        each.set_xlabel("Round")
    letters(axes)
    legend_above(figure, axes[0])
    return figure


def per_task(setting: SettingStudy, styles: Mapping[str, Style]) -> Iterator[tuple[str, Figure]]:
    """(name, figure): accuracy and loss of every task."""
    m = len(setting.tasks)
    if m <= TOGETHER_UP_TO:
        yield "per-task", _grid(setting, styles, ("accuracy", "loss"), m)
    else:
        yield "per-task-accuracy", _grid(setting, styles, ("accuracy",), COLUMNS)
        yield "per-task-loss", _grid(setting, styles, ("loss",), COLUMNS)


def _grid(setting: SettingStudy, styles: Mapping[str, Style], kinds: tuple[str, ...], columns: int) -> Figure:
    m = len(setting.tasks)
    rows = len(kinds) * -(-m // columns)
    few = m <= TOGETHER_UP_TO
    figure, axes = panels(rows, columns, 1.95 if few else 1.25, sharex=True, sharey=not few)
    shown = [(kind, i) for kind in kinds for i in range(m)]
    axes = only(figure, axes, len(shown))
    for each, (kind, i) in zip(axes, shown, strict=True):
        for group in setting.groups:
            draw(each, metric_curve(group, f"{kind}.{i}"), styles[group.label], group.label, linewidth=1.2)
        each.set_title(plain(setting.tasks[i], min(24, int(WIDTH / columns / TITLE_LETTER))))
        from_zero(each)
        if few and i == 0:
            each.set_ylabel(_KINDS[kind])
    for each in axes[-columns:]:
        each.set_xlabel("Round")
        each.tick_params(labelbottom=True)  # also above the gaps of the last row
    if not few:
        figure.supylabel(_KINDS[kinds[0]], fontsize=8)
    legend_above(figure, axes[0])
    return figure
