"""The figure of the study of rules: mean against worst accuracy along every rule's knob, beside fixed weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rules_tables import Row, main_metric, rows_of

from fedhv.report.figures.drawing import drawing, legend_above, panels, write_figure
from fedhv.report.palette import METHOD_STYLES, OKABE_ITO, SOLID, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS, MARGIN = 4, 0.06
"""Panels beside each other, and the empty part of an axis."""
RULE, FIXED = Style(OKABE_ITO["blue"], SOLID, "o"), Style(OKABE_ITO["grey"], SOLID, "s")


def write_curves(out: Path, to: Path) -> list[Path]:
    """A figure for every setting with knob curves, as PNG and PDF: a panel for every rule, all with the same axes.

    The axes span the rules. Fixed weights far from equal ones lie outside.
    """
    to.mkdir(parents=True, exist_ok=True)
    written = []
    for folder in sorted(path for path in out.iterdir() if (path / "knobs").is_dir()):
        knobs = rows_of(folder / "knobs")
        if not knobs:
            continue
        fixed = rows_of(folder / "fixed")
        single = [row for row in rows_of(folder / "rules") if row.label in METHOD_STYLES]
        rules = list(dict.fromkeys(_method(row) for row in knobs))
        with drawing():
            lines = -(-len(rules) // COLUMNS)
            figure, axes = panels(lines, COLUMNS, 2.2, width=8.2, sharex=True, sharey=True)
            for rule, panel in zip(rules, axes, strict=False):
                own = [row for row in knobs if _method(row) == rule]
                _curve(panel, fixed, "fixed weights", FIXED)
                _curve(panel, own, "a rule along its knob (large: its first value)", RULE)
                _curve(panel, own[:1], "", RULE, size=7)
                for row in single:
                    _curve(panel, [row], row.label, METHOD_STYLES[row.label], size=9, marker="*")
                panel.set_title(rule)
            _span(axes[0], [*knobs, *single])
            for unused in axes[len(rules) :]:
                unused.set_visible(False)
            mean, worst = (name for name, _, _ in main_metric(knobs)[:2])
            figure.supxlabel(mean, fontsize="medium")
            figure.supylabel(worst, fontsize="medium")
            legend_above(figure, axes[0])
            written += write_figure(to / f"knobs-{folder.name}", figure)
    return written


def _method(row: Row) -> str:
    return next(iter(row.runs.values())).method


def _points(rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    """The means over seeds, rows × (mean, worst), and the deviations of the worst task's metric."""
    keys = [key for _, key, _ in main_metric(rows)[:2]]
    values = [np.array([list(row.values(key).values()) for key in keys]) for row in rows]
    spread = [own[1].std(ddof=1) if own.shape[1] > 1 else 0.0 for own in values]
    return np.array([own.mean(axis=1) for own in values]), np.array(spread)


def _span(axes: Axes, rows: Sequence[Row]) -> None:
    points, spread = _points(rows)
    low, high = points.min(axis=0), points.max(axis=0)
    low[1], high[1] = (points[:, 1] - spread).min(), (points[:, 1] + spread).max()
    room = MARGIN * (high - low)
    axes.set_xlim(low[0] - room[0], high[0] + room[0])
    axes.set_ylim(low[1] - room[1], high[1] + room[1])


def _curve(
    axes: Axes, rows: Sequence[Row], label: str, style: Style, size: float = 3.5, marker: str | None = None
) -> None:
    """The mean points in the order of the knob, with a bar of one deviation of the worst task's metric."""
    if not rows:
        return
    points, spread = _points(rows)
    x, y = points.T
    axes.errorbar(x, y, yerr=spread, linestyle="none", color=style.colour, elinewidth=0.6, alpha=0.4)
    alone = len(rows) == 1
    axes.plot(
        x, y, color=style.colour, marker=marker or style.marker, markersize=size, label=label or None,
        linestyle="none" if alone else "-", linewidth=1.0, zorder=5 if alone else 3,
    )  # fmt: skip
