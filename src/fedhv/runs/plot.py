"""Figures of runs for notebooks: every task's score and weight against the round."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedhv.support.errors import FedHVError
from fedhv.support.statistics import Spread
from fedhv.support.wording import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedhv.runs.record import Run

HEIGHT, WIDTH = 2.4, 3.4
"""Of one panel, in inches."""
DASHES = ("-", "--", "-.", ":")
COLUMNS = 4
LONGEST = 24
"""Of a task's or a metric's name in a title or a legend."""
LEGEND_INSIDE = 6
"""Up to this number of tasks a legend has room in a panel."""


def plot_run(run: Run) -> Figure:
    """Two panels: the score of every task and its weight, against the round."""
    names = _tasks(run)
    beside = len(names) > LEGEND_INSIDE
    figure = _figure(1, 3 if beside else 2)
    scores, weights = figure.subplots(1, 2)
    if not run.rounds:
        raise FedHVError("A plot needs at least one round. Found none.")
    evaluated = run.evaluations
    for i, name in enumerate(names):
        look = {"color": f"C{i}", "linestyle": DASHES[i % len(DASHES)], "label": plain(name, LONGEST)}
        if evaluated:
            values = [round.evaluation.tasks[i].main.value for round in evaluated if round.evaluation is not None]
            scores.plot([round.number for round in evaluated], values, marker="o", markersize=3, **look)
        weights.plot([round.number for round in run.rounds], [round.weights[i] for round in run.rounds], **look)
    figure.suptitle(plain(f"{run.method} on {run.setting}, seed {run.seed}"), fontsize=9)
    _finish(scores, plain("Score: " + ", ".join(_score_names(run))))
    _finish(weights, "Weight")
    place = {"loc": "center left", "bbox_to_anchor": (1, 0.5), "ncols": math.ceil(len(names) / 14)} if beside else {}
    weights.legend(fontsize=7, frameon=False, **place)
    return figure


def plot_runs(runs: Sequence[Run]) -> Figure:
    """A panel for every task's score and, below, one for its weight; a line is a method's mean over seeds.

    A row has up to four tasks.
    """
    methods = list(dict.fromkeys(run.method for run in runs))
    tasks = _tasks(runs[0])
    columns = min(len(tasks), COLUMNS)
    rows = 2 * math.ceil(len(tasks) / columns)
    figure = _figure(rows, columns)
    panels = figure.subplots(rows, columns, squeeze=False)
    score_panels, weight_panels = panels[::2].ravel(), panels[1::2].ravel()
    for left in (*score_panels[len(tasks) :], *weight_panels[len(tasks) :]):
        left.remove()
    for j, method in enumerate(methods):
        own = [run for run in runs if run.method == method]
        look = {"color": f"C{j}", "linestyle": DASHES[j % len(DASHES)], "label": plain(method)}
        for i in range(len(tasks)):
            scores = [
                {r.number: r.evaluation.tasks[i].main.value for r in run.evaluations if r.evaluation} for run in own
            ]
            weights = [{r.number: r.weights[i] for r in run.rounds if len(r.weights) == len(tasks)} for run in own]
            _line(score_panels[i], scores, look, band=True)
            _line(weight_panels[i], weights, look, band=False)
    for i, (name, score) in enumerate(zip(tasks, _score_names(runs[0], every=True), strict=True)):
        _finish(score_panels[i], f"{plain(name, LONGEST)}: {plain(score, LONGEST)}")
        _finish(weight_panels[i], f"{plain(name, LONGEST)}: weight")
    score_panels[0].legend(fontsize=7, frameon=False)
    return figure


def _line(axes: Axes, series: Sequence[dict[int, float]], look: dict[str, Any], band: bool) -> None:
    """The mean of several seeds where all have a value, with one standard deviation around it."""
    rounds = sorted(set.intersection(*(set(each) for each in series)))
    spreads = [Spread.of([each[number] for each in series]) for number in rounds]
    means = [spread.mean for spread in spreads]
    marker = "o" if len(rounds) == 1 else ""  # a baseline has one evaluation, which is no line
    axes.plot(rounds, means, linewidth=1.3, marker=marker, markersize=4, **look)
    if band and len(series) > 1:
        low, high = ([s.mean + sign * (s.deviation or 0.0) for s in spreads] for sign in (-1, 1))
        axes.fill_between(rounds, low, high, color=look["color"], alpha=0.15, linewidth=0)


def _tasks(run: Run) -> list[str]:
    """The names of the tasks; numbers before the first evaluation."""
    for round in run.rounds:
        if round.evaluation is not None:
            return [task.name for task in round.evaluation.tasks]
    return [f"task {i + 1}" for i in range(len(run.rounds[0].weights) if run.rounds else 0)]


def _score_names(run: Run, every: bool = False) -> list[str]:
    evaluated = [round.evaluation for round in run.evaluations if round.evaluation is not None]
    if not evaluated:
        return ["not evaluated"] * (len(_tasks(run)) if every else 1)
    names = ["accuracy %" if task.main.name == "accuracy" else task.main.name for task in evaluated[-1].tasks]
    return names if every else list(dict.fromkeys(names))


def _finish(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=8.5)
    axes.set_xlabel("Round", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.grid(color="#DDDDDD", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.locator_params(axis="x", integer=True)


def _figure(rows: int, columns: int) -> Figure:
    try:
        from matplotlib.figure import Figure as Base
    except ImportError:
        raise FedHVError("`plot` needs matplotlib: pip install 'fedhv[figures]'.") from None

    class Picture(Base):
        """A figure that a notebook shows, whatever its backend; it is not one of pyplot's, which shows those twice."""

        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=130)
            return buffer.getvalue()

    return Picture(figsize=(WIDTH * columns, HEIGHT * rows), layout="constrained")
