"""What is taken from finished runs: final values, averages over evaluations, slacks, weights, costs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fedhv.paper.found import Found
from fedhv.paper.plan import Variant
from fedhv.runs.history import evaluations
from fedhv.support.statistics import Spread

LAST = 10

Value = Callable[[Found], float]


def of_group(found: Sequence[Found], variant: Variant, method: str) -> list[Found]:
    """The finished runs of one method in one study."""
    return [each for each in found if each.finished and (each.run.variant, each.run.method) == (variant, method)]


def spread(runs: Sequence[Found], value: Value) -> Spread | None:
    """Mean and sample standard deviation over runs; None where there is none."""
    return Spread.of([value(run) for run in runs]) if runs else None


def final(key: str) -> Value:
    """A value of the last evaluation."""
    return lambda run: float(_last(run)[key])


def final_of_task(i: int, key: str) -> Value:
    """A value of one task in the last evaluation."""
    return lambda run: float(_last(run)["tasks"][i][key])


def last_ten(key: str) -> Value:
    """The average over the last ten evaluations of a run."""
    return lambda run: statistics.fmean(record["evaluation"][key] for record in evaluations(run.history)[-LAST:])


def seconds(rounds: int) -> Value:
    """Wall-clock seconds of the first so many rounds, and of the calibration where there was one."""

    def value(run: Found) -> float:
        calibration = run.reference.cost.seconds if run.reference else 0.0
        return calibration + sum(float(record["seconds"]) for record in run.history[:rounds])

    return value


def megabytes(*keys: str) -> Value:
    """10⁶ bytes that one round moves, all its clients together."""
    return lambda run: sum(record[key] for record in run.history for key in keys) / len(run.history) / 1e6


def _last(run: Found) -> dict[str, Any]:
    evaluation: dict[str, Any] = evaluations(run.history)[-1]["evaluation"]
    return evaluation


@dataclass(frozen=True)
class Diagnostics:
    """The smallest slack of any report, and how often the floor was used out of how many chances."""

    slack: float
    floored: int
    out_of: int
    runs: int


def diagnostics(runs: Sequence[Found]) -> Diagnostics | None:
    """Over all rounds, tasks and runs of FedHV; None where there is none."""
    records = [record for run in runs for record in run.history if "slack" in record]
    if not records:
        return None
    return Diagnostics(
        slack=min(min(record["slack"]) for record in records),
        floored=sum(record.get("floored", 0) for record in records),
        out_of=sum(len(record["slack"]) for record in records),
        runs=len(runs),
    )


def weights(runs: Sequence[Found]) -> list[dict[str, Any]]:
    """FedHV's weights round by round: for every task the mean and deviation over seeds, and every seed's own."""
    rows: list[dict[str, Any]] = []
    if not runs:
        return rows
    tasks = [task["name"] for task in runs[0].summary["tasks"]]
    for t in range(min(len(run.history) for run in runs)):
        for i, task in enumerate(tasks):
            values = [float(run.history[t]["weights"][i]) for run in runs]
            over = Spread.of(values)
            row = {"round": runs[0].history[t]["round"], "task": task, "mean": over.mean, "std": over.deviation}
            rows.append(row | {f"seed {run.run.seed}": value for run, value in zip(runs, values, strict=True)})
    return rows
