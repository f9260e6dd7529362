"""How tasks are balanced: the weights that methods used, and the slacks behind FedHV's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhv.report.aggregate import Curve, round_curve
from fedhv.report.figures.drawing import draw, from_zero, legend_above, letters, only, panels
from fedhv.report.groups import Group, SettingStudy
from fedhv.report.palette import task_styles
from fedhv.report.reading import RunData
from fedhv.support.numbers import is_number
from fedhv.support.wording import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NEAR_FLOOR = 30.0
"""Slacks that are at most this many times the floor are near it."""
LINES_UP_TO = 8
"""Up to this number of tasks, weights are lines; with more they are a map."""


def weighting(setting: SettingStudy) -> list[Group]:
    """The groups whose weights are not the same in all rounds."""
    return [group for group in setting.groups if any(_varies(run.rounds.weights) for run in group.runs)]


def weights(setting: SettingStudy) -> Figure:
    """The weights of every round, a panel for each method that adapts them."""
    groups = weighting(setting)
    few = len(setting.tasks) <= LINES_UP_TO
    columns = min(len(groups), 3)
    figure, axes = panels(-(-len(groups) // columns), columns, 2.3 if few else 3.6, sharey=True)
    axes = only(figure, axes, len(groups))
    for each, group in zip(axes, groups, strict=True):
        each.set_title(plain(group.label))
        each.set_xlabel("Round")
        if few:
            _lines(each, setting, group, "weights")
            each.axhline(1 / len(setting.tasks), color="#888888", linewidth=0.8, linestyle=":", zorder=1)
    if few:  # panels share the axis, so its limit is known only when all have been drawn
        axes[0].set_ylim(0, min(1.0, max(each.get_ylim()[1] for each in axes)))
    for each in axes[::columns]:
        each.set_ylabel("Weight" if few else "Task")
    letters(axes)
    if few:
        legend_above(figure, axes[0])
    else:
        _maps(figure, axes, setting, groups)
    return figure


def with_slack(setting: SettingStudy) -> list[Group]:
    """The groups whose runs report slacks."""
    return [group for group in setting.groups if any(np.isfinite(run.rounds.slack).any() for run in group.runs)]


def slacks(setting: SettingStudy) -> Figure:
    """r − f̂ of every task and round, on a linear axis and on a logarithmic one."""
    groups = with_slack(setting)
    figure, axes = panels(len(groups), 2, 2.5)
    for group, linear, log in zip(groups, axes[::2], axes[1::2], strict=True):
        log.set_yscale("log")
        for each in (linear, log):
            if len(setting.tasks) <= LINES_UP_TO:
                _lines(each, setting, group, "slack", logarithmic=each is log)
            else:
                _envelope(each, group)
            each.set_title(f"{plain(group.label)}, {'logarithmic' if each is log else 'linear'} axis")
            each.set_ylabel("Slack  $r_i - \\hat{f}_i$")
            each.set_xlabel("Round")
        linear.set_ylim(bottom=min(0.0, linear.get_ylim()[0]))
        floor = group.runs[0].record.parameters.get("floor")
        if is_number(floor) and floor > 0:
            _floor(log, float(floor))
    letters(axes)
    legend_above(figure, axes[1])
    return figure


def _floor(axes: Axes, floor: float) -> None:
    """The floor of the slacks as a line where slacks come near it; else in words, instead of empty decades."""
    if axes.get_ylim()[0] <= NEAR_FLOOR * floor:
        axes.axhline(floor, color="#222222", linewidth=1, linestyle=(0, (4, 2)), label=f"floor {floor:g}")
        return
    style: dict[str, Any] = {"fontsize": 6.5, "color": "#444444", "ha": "right", "va": "bottom"}
    axes.text(0.98, 0.03, f"floor {floor:g}, below this axis", transform=axes.transAxes, **style)


def _lines(axes: Axes, setting: SettingStudy, group: Group, what: str, logarithmic: bool = False) -> None:
    for i, (task, style) in enumerate(zip(setting.tasks, task_styles(setting.tasks), strict=True)):

        def values(run: RunData, i: int = i) -> np.ndarray:
            column: np.ndarray = getattr(run.rounds, what)[:, i]
            return np.where(column > 0, column, np.nan) if logarithmic else column

        curve = round_curve(group, values)
        if logarithmic:  # a logarithmic axis cannot show a band below zero
            low = np.maximum(curve.mean - curve.deviation, curve.mean / 10)
            curve = Curve(curve.x, curve.mean, curve.mean - low, curve.count)
        draw(axes, curve, style, task, linewidth=1.3)
    from_zero(axes)


def _envelope(axes: Axes, group: Group) -> None:
    """Smallest, median and largest slack of many tasks."""
    for name, which, colour, dash in (
        ("largest", np.nanmax, "#56B4E9", "--"),
        ("median", np.nanmedian, "#0072B2", "-."),
        ("smallest", np.nanmin, "#D55E00", "-"),
    ):

        def values(run: RunData, which: Callable[..., np.ndarray] = which) -> np.ndarray:
            return which(run.rounds.slack, axis=1)

        curve = round_curve(group, values)
        axes.plot(curve.x, curve.mean, color=colour, linestyle=dash, label=f"{name} of {_tasks(group)} tasks")
    from_zero(axes)


def _maps(figure: Figure, axes: Sequence[Axes], setting: SettingStudy, groups: Sequence[Group]) -> None:
    """Weights as colours, the same in all panels: tasks down, rounds across, the mean over seeds."""
    means = [_mean_weights(group, len(setting.tasks)) for group in groups]
    low, high = (float(which([which(mean) for _, mean in means])) for which in (np.nanmin, np.nanmax))
    image: Any = None
    for each, (x, mean) in zip(axes, means, strict=True):
        each.grid(False)
        extent = (float(x[0]) - 0.5, float(x[-1]) + 0.5, len(mean) - 0.5, -0.5)
        image = each.imshow(
            mean, aspect="auto", cmap="cividis", extent=extent, interpolation="nearest", vmin=low, vmax=high
        )
    ticks = list(range(0, len(setting.tasks), 1 if len(setting.tasks) <= 20 else 2))
    axes[0].set_yticks(ticks, [plain(setting.tasks[i], 20) for i in ticks], fontsize=5.5)
    figure.colorbar(image, ax=list(axes), label="Weight", pad=0.015, aspect=35)


def _mean_weights(group: Group, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Rounds, and (m, rounds) weights."""

    def values(i: int) -> Callable[[RunData], np.ndarray]:
        return lambda run: run.rounds.weights[:, i]

    curves = [round_curve(group, values(i)) for i in range(m)]
    return curves[0].x, np.array([curve.mean for curve in curves])


def _varies(values: np.ndarray) -> bool:
    known = values[np.isfinite(values).all(axis=1)]
    return len(known) > 1 and bool((np.ptp(known, axis=0) > 1e-9).any())


def _tasks(group: Group) -> int:
    return int(group.runs[0].rounds.slack.shape[1])
