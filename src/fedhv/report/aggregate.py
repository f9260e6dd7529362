"""Curves over seeds: at every round the mean and the deviation of the runs that were evaluated there."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedhv.report.clock import clock_of
from fedhv.report.groups import Group
from fedhv.report.reading import RunData
from fedhv.report.rounds import Array


@dataclass(frozen=True)
class Curve:
    """`mean` and `deviation` at `x`; `count` runs at every point. The deviation of one run is NaN."""

    x: Array
    mean: Array
    deviation: Array
    count: Array

    def __len__(self) -> int:
        return len(self.x)

    @property
    def band(self) -> tuple[Array, Array]:
        """One deviation below and above the mean, at points that have a deviation."""
        return self.mean - self.deviation, self.mean + self.deviation


def metric_curve(group: Group, metric: str) -> Curve:
    """A metric of the evaluations against the round."""
    return _curve([(run.evaluations.round, run.evaluations.values(metric)) for run in group.runs])


def round_curve(group: Group, values: Callable[[RunData], Array]) -> Curve:
    """A value of every round against the round."""
    return _curve([(run.rounds.number, values(run)) for run in group.runs])


def cost_curve(group: Group, metric: str, cost: str) -> Curve:
    """A metric against the mean "bytes" or "seconds" spent until its round, calibration included."""
    against = metric_curve(group, metric)
    spent = _curve([(run.evaluations.round, cost_until(run, cost)) for run in group.runs])
    return Curve(spent.mean, against.mean, against.deviation, against.count)


def cost_until(run: RunData, cost: str) -> Array:
    """Bytes or seconds until each evaluation, calibration included, compilation left out."""
    rounds = run.rounds
    if cost == "bytes":
        total = run.calibration_bytes + np.cumsum(np.nan_to_num(rounds.down + rounds.up))
    else:
        clock = clock_of(run)
        total = clock.calibration + np.cumsum(clock.seconds)
    spent: Array = total[np.searchsorted(rounds.number, run.evaluations.round)]
    return spent


def _curve(series: Sequence[tuple[Array, Array]]) -> Curve:
    """Align series by their round; a run that has ended is no longer part of the mean."""
    x = np.unique(np.concatenate([each for each, _ in series])) if series else np.empty(0)
    stacked = np.full((len(series), len(x)), np.nan)
    for row, (at, values) in zip(stacked, series, strict=True):
        row[np.searchsorted(x, at)] = values
    known = np.isfinite(stacked)
    count = known.sum(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a point without runs is NaN
        mean = np.nanmean(np.where(known, stacked, np.nan), axis=0) if len(series) else np.empty(0)
        deviation = np.nanstd(np.where(known, stacked, np.nan), axis=0, ddof=1) if len(series) else np.empty(0)
    return Curve(x, mean, np.where(count > 1, deviation, np.nan), count)
