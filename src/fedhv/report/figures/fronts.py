"""Fronts in a plane: the scores of two tasks, or the mean against the worst of many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedhv.report.figures.drawing import legend_above, linestyle, panels
from fedhv.report.front import dominates
from fedhv.report.palette import front_styles
from fedhv.support.wording import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedhv.report.front import Front, FrontPoint


def front_figure(front: Front) -> Figure:
    """Every method's mean points over seeds, those that its others dominate in white; bars are one deviation.

    Two tasks: their main metrics, or accuracies. More tasks: the mean and the worst, of test losses if they are judged
    by different metrics.
    """
    figure, (axes,) = panels(1, 1, 3.6, width=4.6)
    plane = _plane(front)
    signs = np.array([axis.sign for axis in plane])
    looks = front_styles([each.method for each in front.methods])  # those of the page
    for each, style in zip(front.methods, looks, strict=True):
        values = list(dict.fromkeys(repr(point.value) for point in each.points))
        by_value = [[[axis.of(p) for axis in plane] for p in each.points if repr(p.value) == value] for value in values]
        means = np.array([np.mean(own, axis=0) for own in by_value])
        spread = np.array([np.std(own, axis=0, ddof=1) if len(own) > 1 else (0.0, 0.0) for own in by_value])
        kept = ~np.array([any(dominates(signs * q, signs * p) for q in means) for p in means])
        axes.errorbar(
            means[:, 0], means[:, 1], xerr=spread[:, 0], yerr=spread[:, 1], linestyle="none", color=style.colour,
            elinewidth=0.6, alpha=0.5,
        )  # fmt: skip
        order = np.argsort(means[kept][:, 0])
        alone = each.over is None
        axes.plot(
            *means[kept][order].T, color=style.colour, marker="*" if alone else style.marker, zorder=5 if alone else 3,
            markersize=9 if alone else 4, linestyle="none" if alone else linestyle(style), label=plain(each.label),
            linewidth=1.0, markeredgecolor="white" if alone else style.colour,
        )  # fmt: skip
        axes.plot(*means[~kept].T, color=style.colour, marker=style.marker, markerfacecolor="white", linestyle="none")
    axes.set_xlabel(plane[0].name)
    axes.set_ylabel(plane[1].name)
    legend_above(figure, axes)
    return figure


@dataclass(frozen=True)
class _Axis:
    """A number of a point, and the sign that makes smaller values better."""

    name: str
    of: Callable[[FrontPoint], float]
    sign: float


def _plane(front: Front) -> tuple[_Axis, _Axis]:
    mains = front.mains
    if len(mains) == 2:
        return _of_task(front, 0), _of_task(front, 1)
    if len(set(mains)) > 1:
        return (
            _Axis("Mean test loss", lambda point: float(np.mean(point.losses)), 1.0),
            _Axis("Worst test loss", lambda point: max(point.losses), 1.0),
        )
    main = mains[0]
    return (
        _Axis(f"Mean {main.unit}", lambda point: float(np.mean(point.scores)), main.sign),
        _Axis(f"Worst {main.unit}", lambda point: (min if main.higher else max)(point.scores), main.sign),
    )


def _of_task(front: Front, i: int) -> _Axis:
    main = front.mains[i]
    return _Axis(f"{plain(front.tasks[i])}: {main.unit}", lambda point: point.scores[i], main.sign)
