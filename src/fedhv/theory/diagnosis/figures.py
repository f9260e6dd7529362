"""The figures of a diagnosis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedhv.report.figures.drawing import letters, linestyle, panels
from fedhv.report.palette import DASHES, MARKERS, OKABE_ITO, sequence, task_styles
from fedhv.support.wording import plain
from fedhv.theory.diagnosis.diagnose import Diagnosis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Series = Sequence[float | None]


def margins_figure(found: Diagnosis) -> Figure:
    """The slacks of every round: the server's estimates, and the true slacks at measured models."""
    figure, axes = panels(1, 1, 3.0)
    ax, run = axes[0], found.run
    rounds = np.arange(run.rounds)
    slack = run.slacks
    for i, (task, style) in enumerate(zip(run.tasks, task_styles(run.tasks), strict=True)):
        dash = linestyle(style)
        ax.plot(rounds, slack[:, i], color=style.colour, ls=dash, lw=1.1, alpha=0.75, label=f"{plain(task)}, estimated")
        at = [model.round for model in found.models]
        true = [model.slack[i] for model in found.models]
        ax.plot(at, true, style.marker, color=style.colour, mec="black", mew=0.5, ms=4.5, label=f"{plain(task)}, true")
    _points(
        ax, found, [model.slack_floor for model in found.models], OKABE_ITO["grey"], "_", r"floor $e^{-\Phi}/R_{\max}$"
    )
    ax.axhline(0, color="#444444", lw=0.8)
    low, high = min(0.0, slack.min()), max(slack.max(), max(run.reference))
    ax.set_ylim(low - 0.04 * (high - low), high + 0.04 * (high - low))
    ax.set_xlabel("round $t$")
    ax.set_ylabel(r"slack $r_i - f_i(\theta^t)$")
    ax.margins(x=0.02)
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=min(5, len(run.tasks) + 1))
    return figure


def theory_figure(found: Diagnosis) -> Figure:
    """Reports, weights and stationarity with their bounds, and the bound for other cohorts and budgets."""
    figure, (reports, weights, stationary, others) = panels(2, 2, 2.6)
    models = found.models
    _points(reports, found, [m.report_error for m in models], OKABE_ITO["vermillion"], "o", "this run")
    _line(reports, found, [m.report_error_bound_orthogonal for m in models], OKABE_ITO["blue"], 1, "bound on the mean")
    if any(m.report_error_bound > m.report_error_bound_orthogonal for m in models):
        _line(reports, found, [m.report_error_bound for m in models], OKABE_ITO["sky"], 3, "without independence")
    reports.set_title(r"report error $\|\hat{F} - F(\theta^t)\|_\infty^2$")
    _line(weights, found, [m.staleness for m in models], OKABE_ITO["vermillion"], 0, "measured", "o")
    _line(weights, found, [m.staleness_bound for m in models], OKABE_ITO["blue"], 1, r"bound, $2/\tilde\rho$", "s")
    weights.axhline(2, color=OKABE_ITO["grey"], lw=0.9, ls=(0, DASHES[3]), label="simplex's diameter")
    weights.set_title(r"stale weights $\|w^t - w^{\star,t}\|_1$")
    _line(
        stationary,
        found,
        [m.gradient_norm for m in models],
        OKABE_ITO["vermillion"],
        0,
        r"$\|\nabla\Phi\|$ = PFgap",
        "o",
    )
    _line(stationary, found, [m.pareto_bound for m in models], OKABE_ITO["blue"], 1, r"$\|\nabla\Phi\|/c$", "s")
    _line(stationary, found, [m.pareto_residual for m in models], OKABE_ITO["green"], 2, r"$\mathcal{P}$", "^")
    stationary.set_title("distance from stationarity")
    for ax in (reports, weights, stationary):
        ax.set_xlabel("round $t$")
        if any((np.asarray(line.get_ydata(), dtype=float) > 0).any() for line in ax.get_lines()):
            ax.set_yscale("log")
        ax.margins(x=0.03)
    _others(others, found)
    for ax in (reports, weights, stationary, others):
        low, high = ax.get_ylim()
        if ax.get_yscale() == "log" and low > 0:
            ax.set_ylim(low, high * (high / low) ** 0.45)  # room for the legend
        ax.legend(loc="upper right", fontsize=6.5, ncols=2, columnspacing=1.0, handlelength=2.2)
    letters((reports, weights, stationary, others))
    return figure


def _others(ax: Axes, found: Diagnosis) -> None:
    budgets = list(dict.fromkeys(each.report for each in found.alternatives))
    for budget, colour, marker in zip(budgets, sequence(len(budgets)), MARKERS, strict=False):
        line = [each for each in found.alternatives if each.report == budget and each.bound > 0]
        zero = any(each.report == budget and each.bound == 0 for each in found.alternatives)
        label = rf"$B_{{\mathrm{{rep}}}} = $ {budget}" + (" (zero at $M = N$)" if zero else "")
        if line:
            ax.plot([e.cohort for e in line], [e.bound for e in line], color=colour, marker=marker, label=label)
    for each in found.alternatives:
        if each.current and each.bound > 0:
            ax.plot(each.cohort, each.bound, "o", ms=9, mfc="none", mec="black", mew=1.2, label="this run")
    ax.set_xscale("log", base=2)
    cohorts = sorted({each.cohort for each in found.alternatives})
    ax.set_xticks(cohorts, [str(m) for m in cohorts])
    ax.minorticks_off()
    if any(each.bound > 0 for each in found.alternatives):
        ax.set_yscale("log")
    ax.set_xlabel("participants $M$")
    ax.set_title(r"bound on $\Xi$ by $M$ and $B_{\mathrm{rep}}$")


def _known(found: Diagnosis, values: Series) -> tuple[list[int], list[float]]:
    pairs = [(m.round, value) for m, value in zip(found.models, values, strict=True) if value is not None]
    return [t for t, _ in pairs], [value for _, value in pairs]


def _points(ax: Axes, found: Diagnosis, values: Series, colour: str, marker: str, label: str) -> None:
    x, y = _known(found, values)
    if x:
        ax.plot(x, y, marker, color=colour, ms=4 if marker != "_" else 7, mew=1.4 if marker == "_" else 1, label=label)


def _line(ax: Axes, found: Diagnosis, values: Series, colour: str, dash: int, label: str, marker: str = "") -> None:
    """A curve through the models of a replay; single points if only stored models were measured."""
    x, y = _known(found, values)
    if not x:
        return
    if all(model.source == "replay" for model in found.models):
        ax.plot(x, y, color=colour, ls=(0, DASHES[dash]) if DASHES[dash] else "-", marker=marker, ms=3, label=label)
    else:
        ax.plot(x, y, marker or "_", color=colour, ms=5 if marker else 9, mew=1 if marker else 1.8, label=label)
