"""Trade-offs between tasks: trajectories in the plane of two tasks, and a radar over many."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhv.report.aggregate import metric_curve
from fedhv.report.comparison import final, values_of
from fedhv.report.figures.drawing import WIDTH, legend_above, linestyle, panels
from fedhv.report.groups import SettingStudy
from fedhv.report.palette import Style
from fedhv.support.statistics import Spread
from fedhv.support.wording import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INSET = (0.62, 0.07, 0.36, 0.34)
"""Where the inset of a plane is, in parts of the axes: left, bottom, width, height."""
ROOM_FOR_INSET = 0.75
"""The space below the final points, in parts of their range, so that the inset covers none of them."""
SMALLEST_RANGE = 0.5
"""Percentage points that axes show at least."""
UPRIGHT_UP_TO = 12
"""Up to this number of tasks, the names around a radar are horizontal; with more they are rotated."""


def plane_tasks(setting: SettingStudy) -> tuple[int, int]:
    """The two tasks that a plane shows: the easiest on the horizontal axis, the hardest on the vertical one."""
    m = len(setting.tasks)
    means = [
        np.mean([value for group in setting.groups for value in values_of(group, final(f"accuracy.{i}"))])
        for i in range(m)
    ]
    easiest, hardest = int(np.argmax(means)), int(np.argmin(means))
    return (easiest, hardest) if easiest != hardest else (0, min(1, m - 1))


def plane(setting: SettingStudy, styles: Mapping[str, Style]) -> Figure:
    """Final accuracies of two tasks, with one deviation of each, and in an inset the way there.

    The axes end near the final points, which are close together; the curves begin far away from them.
    """
    figure, (axes,) = panels(1, 1, 3.4, width=4.2)
    across, up = plane_tasks(setting)
    names = [plain(setting.tasks[task]) for task in (across, up)]
    whole: Any = axes.inset_axes(INSET)
    ends = []
    for group in setting.groups:
        x, y = metric_curve(group, f"accuracy.{across}"), metric_curve(group, f"accuracy.{up}")
        if not len(x):
            continue
        style = styles[group.label]
        for each, width in ((axes, 1.3), (whole, 0.9)):
            each.plot(
                x.mean, y.mean, color=style.colour, linestyle=linestyle(style), alpha=0.7, linewidth=width,
                marker=style.marker, markevery=[-1], markersize=4 if each is axes else 2, label=plain(group.label),
            )  # fmt: skip
        whole.plot(x.mean[:1], y.mean[:1], marker="o", markersize=2.5, color=style.colour, markerfacecolor="white")
        end = [Spread.of(values_of(group, final(f"accuracy.{task}"))) for task in (across, up)]
        ends.append(end)
        axes.errorbar(
            end[0].mean, end[1].mean, xerr=end[0].deviation, yerr=end[1].deviation, color=style.colour,
            marker=style.marker, markersize=6, markeredgecolor="white", elinewidth=1.6, capsize=2.5, zorder=5,
            linestyle="none",
        )  # fmt: skip
    if ends:
        axes.set_xlim(*near([end[0] for end in ends]))
        axes.set_ylim(*near([end[1] for end in ends], room=ROOM_FOR_INSET))
    _as_inset(axes, whole)
    axes.set_xlabel(f"{names[0]}: final accuracy (%)")
    axes.set_ylabel(f"{names[1]}: final accuracy (%)")
    legend_above(figure, axes)
    return figure


def near(ends: Sequence[Spread], room: float = 0.0) -> tuple[float, float]:
    """Limits around the final points and their deviations; `room` times the range is added below them."""
    known = [end for end in ends if math.isfinite(end.mean)]
    low = min((end.mean - (end.deviation or 0.0) for end in known), default=0.0)
    high = max((end.mean + (end.deviation or 0.0) for end in known), default=100.0)
    span = max(high - low, SMALLEST_RANGE)
    return low - (0.12 + room) * span, high + 0.12 * span


def _as_inset(axes: Axes, whole: Any) -> None:
    """The whole way in a corner, in small print, with the part that the axes show outlined."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    outline: dict[str, Any] = {"fill": False, "edgecolor": "#444444", "linewidth": 0.7}
    from matplotlib.patches import Rectangle

    whole.add_patch(Rectangle((left, bottom), right - left, top - bottom, **outline))
    whole.tick_params(labelsize=5.5, length=2, pad=1.5)
    whole.set_title("all rounds", fontsize=6.5, pad=2)
    whole.grid(False)
    whole.patch.set_alpha(0.92)


def radar(setting: SettingStudy, styles: Mapping[str, Style]) -> Figure:
    """Mean final accuracy of every task; the radial axis is cut to the range of the values, with a note."""
    from matplotlib.figure import Figure

    m = len(setting.tasks)
    size = 4.4 if m <= UPRIGHT_UP_TO else WIDTH
    figure = Figure(figsize=(size, size * (0.95 if m <= UPRIGHT_UP_TO else 1.05)), layout="constrained")
    axes: Any = figure.add_subplot(projection="polar")
    around = np.linspace(0, 2 * np.pi, m, endpoint=False)
    low, high = math.inf, -math.inf
    for group in setting.groups:
        if not group.counted:
            continue
        means = np.array([np.mean(values_of(group, final(f"accuracy.{i}"))) for i in range(m)])
        low, high = min(low, np.nanmin(means)), max(high, np.nanmax(means))
        style = styles[group.label]
        closed = np.append(around, around[0]), np.append(means, means[0])
        marker = style.marker if m <= UPRIGHT_UP_TO else None
        axes.plot(*closed, color=style.colour, linestyle=linestyle(style), marker=marker, label=plain(group.label))
        axes.fill(*closed, color=style.colour, alpha=0.05, linewidth=0)
    floor, top = radial_limits(low, high)
    axes.set_rlim(floor, top)
    axes.set_theta_offset(np.pi / 2)
    axes.set_theta_direction(-1)
    _name_spokes(axes, around, [plain(task, 20) for task in setting.tasks], top + 0.03 * (top - floor))
    axes.set_rlabel_position(180 / m)
    axes.tick_params(axis="y", labelsize=6.5, labelcolor="#555555")
    axes.spines["polar"].set_color("#BBBBBB")
    figure.supxlabel(f"Accuracy (%); the radial axis spans {floor:g} to {top:g}", fontsize=7.5, color="#333333")
    legend_above(figure, axes)
    return figure


def _name_spokes(axes: Any, around: np.ndarray, names: Sequence[str], radius: float) -> None:
    """Task names at their spokes; if there are many, they point outwards so that they do not overlap."""
    axes.set_xticks(around, [""] * len(names))
    many = len(names) > UPRIGHT_UP_TO
    for angle, name in zip(around, names, strict=True):
        across = np.sin(angle)
        side = "center" if abs(across) < 0.1 and not many else "left" if across > -1e-9 else "right"
        turn = (90 - np.degrees(angle) + (0 if side == "left" else 180)) if many else 0
        height = "center" if many or abs(across) > 0.1 else "bottom" if np.cos(angle) > 0 else "top"
        axes.text(
            angle, radius, name, fontsize=6 if many else 8, rotation=turn, rotation_mode="anchor", ha=side, va=height
        )


def radial_limits(low: float, high: float) -> tuple[float, float]:
    """Whole percentages around the values, with some space towards the centre."""
    room = max(0.35 * (high - low), 1.0)
    return float(max(0, math.floor(low - room))), float(min(100, math.ceil(high + 0.05 * room)))
