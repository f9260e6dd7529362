"""One run as the page has it: its rounds and evaluations as rounded columns, its health, and its participants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedhv.protocol.evaluation import AGGREGATES, MainScore
from fedhv.report.clock import clock_of
from fedhv.report.groups import Group
from fedhv.report.rates import rates_of
from fedhv.report.reading import RunData
from fedhv.report.rounds import Array
from fedhv.support import toml

RECENT = 20
"""The rounds whose mean time estimates the time left."""


def run_payload(
    run: RunData, group: Group, step: int, beside: Sequence[RunData], hyper: dict[str, Any]
) -> dict[str, Any]:
    """A run of a group; `beside` are the runs that were computed together with it, `hyper` what it differs in."""
    rounds, evaluations = run.rounds, run.evaluations
    shown, judged = thin(len(rounds), step), thin(len(evaluations), step)
    at = np.searchsorted(rounds.number, evaluations.round[judged])
    spent_bytes = np.cumsum(np.nan_to_num(rounds.down + rounds.up))
    clock = clock_of(run)
    spent_seconds, compiling = np.cumsum(clock.seconds), np.cumsum(clock.compiling)
    report = None if follows_slack(run) else columns(rounds.report[shown], 4)
    return {
        "name": run.name,
        "method": run.method,
        "label": group.label,
        "seed": run.seed,
        "rates": rates_of([run.record]),
        "state": "finished" if run.finished else f"{run.done} of {run.planned} rounds",
        "finished": run.finished,
        "rounds": run.done,
        "planned": run.planned,
        "left": seconds_left(run, beside),
        "shared": run.clock_is_shared or bool(beside),
        "estimated": not run.clock_is_recorded,
        "compilation": _numbers(compiling[at], 4) if compiling.any() else None,
        "hyper": hyper,
        "health": [{"text": text, "bad": bad} for text, bad in run.incidents.lines()],
        "nodes": None if run.attendance is None else run.attendance.as_dict(),
        "absent": [int(n) for n in np.nansum(rounds.absent, axis=0)] if np.nansum(rounds.absent) else None,
        "config": toml.write(run.record.config),
        "calibration": [run.calibration_bytes, round(clock.calibration, 3), round(clock.calibration_compiling, 3)],
        "reference": _numbers(run.reference.values, 6) if run.reference else None,
        "round": rounds.number[shown].tolist(),
        "weights": columns(rounds.weights[shown], 4),
        "slack": columns(rounds.slack[shown], 4),
        "report": report,
        "evaluated": evaluations.round[judged].tolist(),
        "bytes": [int(value) for value in spent_bytes[at]],
        "seconds": _numbers(spent_seconds[at], 6),
        "accuracy": columns(evaluations.accuracy[judged], 5),
        "loss": columns(evaluations.loss[judged], 4),
        **{name: _numbers(evaluations.values(name)[judged], 7) for name in AGGREGATES},
    }


def main_payload(run: RunData, step: int, common: MainScore | None) -> dict[str, Any]:
    """What the tasks are judged by, where it is not accuracy; the worst one where all have the same metric."""
    main = run.evaluations.main[thin(len(run.evaluations), step)]
    made: dict[str, Any] = {"main": columns(main, 5)}
    if common is not None and main.size:
        made["worst_main"] = _numbers(main.min(axis=1) if common.higher else main.max(axis=1), 5)
    return made


def follows_slack(run: RunData) -> bool:
    """Whether every report is the reference minus the slack, so that the page can compute it."""
    if run.reference is None or not np.isfinite(run.rounds.slack).any():
        return False
    found = np.asarray(run.reference.values) - run.rounds.slack
    return found.shape == run.rounds.report.shape and bool(np.allclose(found, run.rounds.report, equal_nan=True))


def seconds_left(run: RunData, beside: Sequence[RunData] = ()) -> float | None:
    """The rounds that are left times the mean of the recent ones; None for a run that is done or has not begun.

    A run that is computed together with others has a share of each round's time, and waits for all shares.
    """
    recent = run.rounds.seconds[-RECENT:]
    if run.finished or not len(recent) or not np.isfinite(recent).all():
        return None
    together = float(run.rounds.shared[-1]) if run.clock_is_recorded else 1 + sum(not each.finished for each in beside)
    return round(float(recent.mean()) * together * max(0, run.planned - run.done), 1)


def clock_mates(run: RunData, runs: Sequence[RunData]) -> list[RunData]:
    """An estimate of the runs that were computed together with a run, where that is not recorded.

    Their engines stack, and their first rounds took as long.
    """
    if run.clock_is_recorded:
        return []
    if run.record.machine.get("engine") != "stacked" or not len(run.rounds):
        return []
    others = [o for o in runs if o is not run and o.record.machine.get("engine") == "stacked" and len(o.rounds)]
    return [o for o in others if math.isclose(o.rounds.seconds[0], run.rounds.seconds[0], rel_tol=1e-4)]


def thin(n: int, step: int) -> Array:
    """Every `step`th of n positions, counted from the end; the last one is always included."""
    return np.arange(n - 1, -1, -step)[::-1] if n else np.empty(0, dtype=np.int64)


def columns(values: Array, digits: int) -> list[Any] | None:
    """One list per task; one number for a constant column; None without any finite value."""
    if not values.size or not np.isfinite(values).any():
        return None
    return [number(column[0], digits) if constant(column) else _numbers(column, digits) for column in values.T]


def constant(values: Array) -> bool:
    """Whether nothing changes from row to row."""
    return not np.isfinite(values).any() or bool((values == values[:1]).all())


def _numbers(values: Sequence[float] | Array, digits: int) -> list[float | None]:
    return [number(value, digits) for value in values]


def number(value: float | None, digits: int) -> float | None:
    """A number rounded to significant digits; None for NaN and infinity, which JSON does not have."""
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded == int(rounded) and abs(rounded) < 1e15 else rounded
