"""The figure of the study of rules: mean against worst accuracy along every rule's knob, beside fixed weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rules_tables import Row, main_metric, rows_of

from fedhv.report.figures.drawing import drawing, legend_above, panels, write_figure
from fedhv.report.palette import METHOD_STYLES, OKABE_ITO, SOLID, Style, spare_styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SINGLE = ("uniform", "fedhv")
"""Rules without a knob that are points of the figure."""


def write_curves(out: Path, to: Path) -> list[Path]:
    """A figure for every setting with knob curves, as PNG and PDF."""
    to.mkdir(parents=True, exist_ok=True)
    written = []
    for folder in sorted(path for path in out.iterdir() if (path / "knobs").is_dir()):
        knobs = rows_of(folder / "knobs")
        if not knobs:
            continue
        with drawing():
            figure, (axes,) = panels(1, 1, 4.2, width=5.4)
            _curve(axes, rows_of(folder / "fixed"), "fixed weights", Style(OKABE_ITO["grey"], SOLID, "s"))
            looks = iter(spare_styles())
            for rule in dict.fromkeys(_method(row) for row in knobs):
                _curve(axes, [row for row in knobs if _method(row) == rule], rule, next(looks))
            for row in rows_of(folder / "rules"):
                if row.label in SINGLE:
                    _curve(axes, [row], row.label, METHOD_STYLES[row.label], alone=True)
            mean, worst = (name for name, _, _ in main_metric(knobs)[:2])
            axes.set_xlabel(mean)
            axes.set_ylabel(worst)
            legend_above(figure, axes)
            written += write_figure(to / f"knobs-{folder.name}", figure)
    return written


def _method(row: Row) -> str:
    return next(iter(row.runs.values())).method


def _curve(axes: Axes, rows: Sequence[Row], label: str, style: Style, alone: bool = False) -> None:
    """The mean points over seeds in the order of the knob, with a bar of one deviation of the worst task's metric."""
    if not rows:
        return
    keys = [key for _, key, _ in main_metric(rows)[:2]]
    values = [np.array([list(row.values(key).values()) for key in keys]) for row in rows]
    x, y = np.array([own.mean(axis=1) for own in values]).T
    spread = [own[1].std(ddof=1) if own.shape[1] > 1 else 0.0 for own in values]
    axes.errorbar(x, y, yerr=spread, linestyle="none", color=style.colour, elinewidth=0.6, alpha=0.4)
    line = "none" if alone else (0, style.dash) if style.dash else "-"
    axes.plot(
        x, y, color=style.colour, marker="*" if alone else style.marker, markersize=10 if alone else 4, label=label,
        linestyle=line, linewidth=1.0, zorder=5 if alone else 3, markeredgecolor="white" if alone else style.colour,
    )  # fmt: skip
