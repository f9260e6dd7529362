"""Accuracy against cost: bytes and wall-clock time, calibration included and compilation left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedhv.report.aggregate import Curve, cost_curve
from fedhv.report.clock import clock_of
from fedhv.report.figures.drawing import draw, from_zero, legend_above, letters, panels
from fedhv.report.figures.learning import TITLES
from fedhv.report.groups import SettingStudy
from fedhv.report.palette import Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNITS = {"bytes": ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "bytes")),
         "seconds": ((3600 * 2, "hours"), (60 * 5, "minutes"), (0, "seconds"))}  # fmt: skip
_PANELS = {"mean_accuracy": "Mean accuracy", "worst_accuracy": "Worst task"}
_NAMES = {"bytes": "Sent in both directions", "seconds": "Wall-clock time"}
SCALE = {"hours": 3600.0, "minutes": 60.0, "seconds": 1.0}


def costs(setting: SettingStudy, styles: Mapping[str, Style]) -> Figure:
    """Mean and worst accuracy against bytes and seconds; a curve starts after its calibration."""
    figure, axes = panels(2, 2, 2.2, sharey="row")
    for row, metric in enumerate(("mean_accuracy", "worst_accuracy")):
        for column, cost in enumerate(("bytes", "seconds")):
            each = axes[2 * row + column]
            curves = [cost_curve(group, metric, cost) for group in setting.groups]
            scale, unit = unit_of(max((float(curve.x[-1]) for curve in curves if len(curve)), default=0), cost)
            for group, curve in zip(setting.groups, curves, strict=True):
                scaled = Curve(curve.x / scale, curve.mean, curve.deviation, curve.count)
                draw(each, scaled, styles[group.label], group.label)
            from_zero(each)
            each.set_title(f"{_PANELS[metric]} against {'communication' if cost == 'bytes' else 'time'}")
            if row == 1:
                each.set_xlabel(f"{_NAMES[cost]} ({unit}){_clock_note(setting) if cost == 'seconds' else ''}")
        axes[2 * row].set_ylabel(TITLES[metric])
    letters(axes)
    legend_above(figure, axes[0])
    return figure


def _clock_note(setting: SettingStudy) -> str:
    """How the seconds differ from those of a run alone with its compilation, on a line of its own."""
    runs = [run for group in setting.groups for run in group.runs]
    clocks = [clock_of(run) for run in runs]
    said = ["shared clock"] if any(run.clock_is_shared for run in runs) else []
    if any(clock.estimated for clock in clocks):
        said.append("without compilation (estimated)")
    elif any(clock.compiling.any() for clock in clocks):
        said.append("without compilation")
    return f"\n{', '.join(said)}" if said else ""


def unit_of(largest: float, cost: str) -> tuple[float, str]:
    """A unit that fits the largest value, and its size."""
    largest = largest if np.isfinite(largest) else 0
    for least, unit in UNITS[cost]:
        if largest >= least:
            return SCALE.get(unit, float(least)), unit
    return 1.0, UNITS[cost][-1][1]
