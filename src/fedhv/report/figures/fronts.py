"""Fronts in a plane: the accuracies of two tasks, or the mean against the worst of many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedhv.report.figures.drawing import legend_above, panels, plain
from fedhv.report.palette import METHOD_STYLES, OKABE_ITO, SOLID, Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedhv.report.front import Front

OTHERS = ("sky", "orange", "grey", "blue", "green", "purple")


def front_figure(front: Front) -> Figure:
    """Every method's mean points over seeds, those that its others dominate in white; bars are one deviation.

    Two tasks: their accuracies. More tasks: mean accuracy and worst accuracy.
    """
    figure, (axes,) = panels(1, 1, 3.6, width=4.6)
    two = len(front.tasks) == 2
    others = 0
    for each in front.methods:
        if each.over is None and each.method in METHOD_STYLES:
            style = METHOD_STYLES[each.method]
        else:
            style = Style(OKABE_ITO[OTHERS[others % len(OTHERS)]], SOLID, "oDs^vP"[others % 6])
            others += 1
        values = list(dict.fromkeys(repr(point.value) for point in each.points))
        by_value = [[_place(p.scores, two) for p in each.points if repr(p.value) == value] for value in values]
        means = np.array([np.mean(own, axis=0) for own in by_value])
        spread = np.array([np.std(own, axis=0, ddof=1) if len(own) > 1 else (0.0, 0.0) for own in by_value])
        kept = ~np.array([any((q >= p).all() and (q > p).any() for q in means) for p in means])
        axes.errorbar(
            means[:, 0], means[:, 1], xerr=spread[:, 0], yerr=spread[:, 1], linestyle="none", color=style.colour,
            elinewidth=0.6, alpha=0.5,
        )  # fmt: skip
        order = np.argsort(means[kept][:, 0])
        alone = each.over is None
        axes.plot(
            *means[kept][order].T, color=style.colour, marker="*" if alone else style.marker, zorder=5 if alone else 3,
            markersize=9 if alone else 4, linestyle="none" if alone else "-", label=plain(each.label),
            linewidth=1.0, markeredgecolor="white" if alone else style.colour,
        )  # fmt: skip
        axes.plot(*means[~kept].T, color=style.colour, marker=style.marker, markerfacecolor="white", linestyle="none")
    names = (
        [f"{plain(task)}: accuracy (%)" for task in front.tasks] if two else ["Mean accuracy (%)", "Worst accuracy (%)"]
    )
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1])
    legend_above(figure, axes)
    return figure


def _place(scores: tuple[float, ...], two: bool) -> tuple[float, float]:
    return (scores[0], scores[1]) if two else (float(np.mean(scores)), min(scores))
