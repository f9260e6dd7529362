"""Values of finished runs: final values, averages over evaluations, slacks, weights, costs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fedhv.paper.found import Found
from fedhv.paper.plan import StudyVariant
from fedhv.protocol.evaluation import Evaluation
from fedhv.protocol.traffic import Traffic
from fedhv.support.statistics import Spread

LAST = 10

Value = Callable[[Found], float]


def of_group(found: Sequence[Found], variant: StudyVariant, method: str) -> list[Found]:
    """The finished runs of one method in one study."""
    return [each for each in found if each.finished and (each.run.variant, each.run.method) == (variant, method)]


def spread(runs: Sequence[Found], value: Value) -> Spread | None:
    """Mean and sample standard deviation over runs; None without runs."""
    return Spread.of([value(run) for run in runs]) if runs else None


def by_seed(runs: Sequence[Found], value: Value) -> dict[int, float]:
    """The values of runs by their seeds."""
    return {run.run.seed: value(run) for run in runs}


def final(key: str) -> Value:
    """A value of the last evaluation."""
    return lambda run: float(getattr(_evaluations(run)[-1], key))


def final_of_task(i: int, key: str) -> Value:
    """A value of one task in the last evaluation."""
    return lambda run: float(getattr(_evaluations(run)[-1].tasks[i], key))


def last_ten(key: str) -> Value:
    """The average over the last ten evaluations of a run."""
    return lambda run: statistics.fmean(getattr(each, key) for each in _evaluations(run)[-LAST:])


def seconds(rounds: int) -> Value:
    """Wall-clock seconds of the first rounds, up to the given number, and of the calibration if there was one."""

    def value(run: Found) -> float:
        calibration = run.reference.cost.seconds if run.reference else 0.0
        return calibration + sum(each.seconds for each in run.kept.rounds[:rounds])

    return value


def megabytes(of: Callable[[Traffic], int]) -> Value:
    """Megabytes (10⁶ bytes) of one round, summed over its clients: down, up or both."""
    return lambda run: sum(of(each.traffic) for each in run.kept.rounds) / len(run.kept.rounds) / 1e6


def _evaluations(run: Found) -> list[Evaluation]:
    return [each.evaluation for each in run.kept.rounds if each.evaluation is not None]


@dataclass(frozen=True)
class Diagnostics:
    """The smallest slack of any report, the number of times the floor was used, and the number of slacks."""

    slack: float
    floored: int
    out_of: int
    runs: int


def diagnostics(runs: Sequence[Found]) -> Diagnostics | None:
    """Over all rounds, tasks and runs of FedHV; None without runs."""
    known = [(each.slack, each.floored or 0) for run in runs for each in run.kept.rounds if each.slack is not None]
    if not known:
        return None
    return Diagnostics(
        slack=min(min(slack) for slack, _ in known),
        floored=sum(floored for _, floored in known),
        out_of=sum(len(slack) for slack, _ in known),
        runs=len(runs),
    )


def weights(runs: Sequence[Found]) -> list[dict[str, Any]]:
    """FedHV's weights round by round: for every task the mean and deviation over seeds, and every seed's own."""
    rows: list[dict[str, Any]] = []
    if not runs:
        return rows
    tasks = [task.name for task in runs[0].kept.summary.tasks]
    for t in range(max(len(run.kept.rounds) for run in runs)):  # to the end of the longest
        there = [(run.run.seed, run.kept.rounds[t]) for run in runs if t < len(run.kept.rounds)]
        for i, task in enumerate(tasks):
            values = {f"seed {seed}": round.weights[i] for seed, round in there}
            over = Spread.of(list(values.values()))
            row = {"round": there[0][1].number, "task": task, "mean": over.mean, "std": over.deviation}
            rows.append(row | {f"seed {run.run.seed}": values.get(f"seed {run.run.seed}") for run in runs})
    return rows
