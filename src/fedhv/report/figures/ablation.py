"""Ablations: final metrics against one hyper-parameter, and the learning curves of its values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedhv.report.aggregate import metric_curve
from fedhv.report.comparison import final, values_of
from fedhv.report.figures.drawing import draw, from_zero, legend_above, letters, panels
from fedhv.report.figures.learning import TITLES
from fedhv.report.groups import ReportSweep, SettingStudy, method_title
from fedhv.report.palette import DASHES, MARKERS, OKABE_ITO, Style, sequence
from fedhv.report.variants import value_text
from fedhv.support.statistics import Spread
from fedhv.support.wording import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LETTERS_IN_A_ROW = 28
"""Values with more letters are written aslant below a panel."""
METRICS = (
    ("mean_accuracy", "mean accuracy", Style(OKABE_ITO["vermillion"], (), "o")),
    ("worst_accuracy", "worst-task accuracy", Style(OKABE_ITO["blue"], (6, 2.5), "s")),
    ("mean_loss", "mean loss", Style(OKABE_ITO["green"], (7, 2, 1.5, 2), "^")),
)


def panels_of(setting: SettingStudy) -> Figure:
    """For every ablation the accuracies and, below, the mean loss."""
    sweeps = setting.sweeps
    figure, axes = panels(2, len(sweeps), 1.95, width=max(3.6, 2.25 * len(sweeps)), sharey="row")
    methods = {sweep.method for sweep in sweeps}
    for column, sweep in enumerate(sweeps):
        top, bottom = axes[column], axes[len(sweeps) + column]
        for metric, label, style in METRICS[:2]:
            _points(top, sweep, metric, label, style)
        _points(bottom, sweep, *METRICS[2])
        name = sweep.factor.title if len(methods) == 1 else f"{method_title(sweep.method)}: {sweep.factor.title}"
        top.set_title(plain(name, 30))
        bottom.set_xlabel(_symbol(sweep))
    axes[0].set_ylabel("Accuracy (%)")
    axes[len(sweeps)].set_ylabel("Mean loss")
    letters(axes[: len(sweeps)])
    legend_above(figure, axes[0])
    return figure


def curves(sweep: ReportSweep) -> Figure:
    """Mean accuracy and mean loss against the round, a colour from dark to light for every value."""
    figure, axes = panels(1, 2, 2.6)
    colours = sequence(len(sweep.groups))
    for each, metric in zip(axes, ("mean_accuracy", "mean_loss"), strict=True):
        for i, (value, group) in enumerate(zip(sweep.values, sweep.groups, strict=True)):
            style = Style(colours[i], DASHES[i % len(DASHES)], MARKERS[i % len(MARKERS)])
            draw(
                each,
                metric_curve(group, metric),
                style,
                f"{_symbol(sweep)} = {plain(value_text(value), 20)}",
                named=True,
            )
        each.set_title(TITLES[metric])
        each.set_xlabel("Round")
        from_zero(each)
    letters(axes)
    legend_above(figure, axes[0])
    return figure


def _symbol(sweep: ReportSweep) -> str:
    """The paper's symbol, or the hyper-parameter's own name, escaped."""
    return f"${sweep.factor.latex}$" if sweep.factor.known else plain(sweep.factor.symbol)


def _points(axes: Axes, sweep: ReportSweep, metric: str, label: str, style: Style) -> None:
    """One point per value at equal distances, because values may differ by orders of magnitude or be words."""
    shown = [(i, values_of(group, final(metric))) for i, group in enumerate(sweep.groups)]
    spreads = [(i, Spread.of(values)) for i, values in shown if values]
    axes.errorbar(
        [i for i, _ in spreads],
        [spread.mean for _, spread in spreads],
        yerr=[spread.deviation or 0.0 for _, spread in spreads],
        color=style.colour, linestyle=(0, style.dash) if style.dash else "-", marker=style.marker, markersize=4.5,
        capsize=2.5, elinewidth=1.1, label=label,
    )  # fmt: skip
    _ticks(axes, sweep.values)


def _ticks(axes: Axes, values: Sequence[object]) -> None:
    names = [plain(value_text(value), 12) for value in values]
    crowded = sum(map(len, names)) > LETTERS_IN_A_ROW
    aslant: dict[str, Any] = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
    axes.set_xticks(range(len(values)), names, **aslant)
    axes.margins(x=0.12)
