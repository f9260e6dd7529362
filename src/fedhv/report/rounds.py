"""A history as arrays, read without trust: what a crash or an editor did to the file is said, not raised."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedhv.runs.history import NAME
from fedhv.support.numbers import is_number

Array = np.ndarray

AGGREGATES = ("mean_accuracy", "worst_accuracy", "mean_loss", "hypervolume")
"""The paper's four, as histories name them."""


@dataclass(frozen=True)
class Evaluations:
    """E evaluations of m tasks: `round` (E), `accuracy` and `loss` (E, m), `aggregates` name → (E), or left out."""

    round: Array
    accuracy: Array
    loss: Array
    aggregates: dict[str, Array]

    def __len__(self) -> int:
        return len(self.round)

    def values(self, metric: str) -> Array:
        """An aggregate by its name, `accuracy.2` or `loss.0` of one task; NaN where an aggregate is left out."""
        if metric in AGGREGATES:
            return self.aggregates.get(metric, np.full(len(self), math.nan))
        kind, _, task = metric.partition(".")
        column: Array = getattr(self, kind)[:, int(task)]
        return column

    def without(self, aggregate: str) -> Evaluations:
        """The same with an aggregate left out, where it would compare what cannot be compared."""
        return replace(self, aggregates={name: each for name, each in self.aggregates.items() if name != aggregate})

    def lacks(self, metric: str) -> bool:
        """Whether it is an aggregate that is left out."""
        return metric in AGGREGATES and metric not in self.aggregates


@dataclass(frozen=True)
class Rounds:
    """T rounds: numbers from 1, weights and slacks (T, m), and what each round cost; NaN where nothing is known."""

    number: Array
    weights: Array
    slack: Array
    floored: Array
    down: Array
    up: Array
    exchanges: Array
    seconds: Array

    def __len__(self) -> int:
        return len(self.number)

    @property
    def last(self) -> int:
        """The number of the last round, 0 if there is none."""
        return int(self.number[-1]) if len(self.number) else 0


@dataclass(frozen=True)
class Records:
    """What a history file held: its tasks, its rounds, its evaluations and what is wrong with it."""

    tasks: tuple[str, ...]
    rounds: Rounds
    evaluations: Evaluations
    notes: tuple[str, ...]


def read_rounds(folder: Path) -> Records:
    """The history in a run's folder; a line that cannot be read ends it, and a note says so."""
    lines, notes = _lines(folder / NAME)
    records: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        record = _record(line)
        if record is None and number == len(lines):  # no newline behind it: the line was being written
            notes.append(f"{NAME} ends in the middle of a line; the {_count(len(records), 'round')} before it are used")
        elif record is None:
            after = f"; only the {_count(len(records), 'round')} before it are used"
            notes.append(f"{NAME}, line {number} is not a round{after}")
            break
        elif records and record["round"] <= records[-1]["round"]:
            notes.append(f"{NAME}, line {number} goes back to round {record['round']}; only what is before it is used")
            break
        else:
            records.append(record)
    return _arrays(records, notes)


def conform(rounds: Rounds, evaluations: Evaluations, m: int) -> tuple[Rounds, Evaluations]:
    """The same with m tasks, for a run that has not said yet how many it has: what is not known is NaN."""

    def wide(values: Array) -> Array:
        return values if values.shape[1] == m else np.full((len(values), m), math.nan)

    return (
        replace(rounds, weights=wide(rounds.weights), slack=wide(rounds.slack)),
        replace(evaluations, accuracy=wide(evaluations.accuracy), loss=wide(evaluations.loss)),
    )


def from_summary(summary: Mapping[str, Any], done: int = 0) -> Records:
    """One evaluation and the totals, for a finished run whose history is lost or holds only `done` rounds."""
    sent = summary.get("communication", {})
    record = {
        "round": summary.get("rounds", 1),
        "weights": summary.get("weights", []),
        "floored": summary.get("floor_activations", 0),
        "downlink_bytes": sent.get("downlink_bytes"),
        "uplink_bytes": sent.get("uplink_bytes"),
        "seconds": summary.get("seconds"),
        "evaluation": {key: summary.get(key) for key in (*AGGREGATES, "tasks")},
    }
    least = summary.get("min_report_slack")
    if is_number(least):
        record["slack"] = [least] * _width(record)
    lost = f"ends after round {done} of {record['round']}" if done else "is missing"
    return _arrays([record], [f"{NAME} {lost}; only the final values are known"])


def _lines(path: Path) -> tuple[list[str], list[str]]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").split("\n"), []
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [f"{NAME} could not be read: {error.strerror or error}"]


def _record(line: str) -> dict[str, Any] | None:
    """A line of a history, or None if it is something else."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    number, evaluation = record.get("round"), record.get("evaluation")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number < 2**53:
        return None
    if evaluation is not None:
        tasks = evaluation.get("tasks") if isinstance(evaluation, dict) else None
        if not isinstance(tasks, list) or not tasks or not all(isinstance(task, dict) for task in tasks):
            return None
    return record


def _arrays(records: Sequence[Mapping[str, Any]], notes: list[str]) -> Records:
    evaluated = [record for record in records if record.get("evaluation") is not None]
    first = evaluated[0]["evaluation"]["tasks"] if evaluated else []
    tasks = tuple(str(task.get("name", f"task {i + 1}")) for i, task in enumerate(first))
    m = len(tasks) or max((_width(record) for record in records), default=0)
    if any(len(record["evaluation"]["tasks"]) != m for record in evaluated):
        notes.append(f"{NAME} changes the number of tasks; rounds with other than {m} show no task values")

    def column(key: str, fallback: float = math.nan) -> Array:
        return np.array([_number(record.get(key, fallback)) for record in records], dtype=float)

    def matrix(key: str) -> Array:
        return np.array([_row(record.get(key), m) for record in records], dtype=float).reshape(len(records), m)

    def of_tasks(key: str) -> Array:
        rows = [_row([t.get(key) for t in record["evaluation"]["tasks"]], m) for record in evaluated]
        return np.array(rows, dtype=float).reshape(len(evaluated), m)

    rounds = Rounds(
        number=np.array([record["round"] for record in records], dtype=np.int64),
        weights=matrix("weights"),
        slack=matrix("slack"),
        floored=column("floored", 0),
        down=column("downlink_bytes"),
        up=column("uplink_bytes"),
        exchanges=column("exchanges"),
        seconds=column("seconds"),
    )
    if len(records) and rounds.number[0] != 1 and len(records) > 1:
        notes.append(f"{NAME} starts with round {rounds.number[0]}")
    elif len(records) > 1 and rounds.number[-1] != len(records):
        notes.append(f"{NAME} leaves out {_count(int(rounds.number[-1]) - len(records), 'round')}")
    evaluations = Evaluations(
        round=np.array([record["round"] for record in evaluated], dtype=np.int64),
        accuracy=of_tasks("accuracy"),
        loss=of_tasks("loss"),
        aggregates={
            name: np.array([_number(record["evaluation"].get(name)) for record in evaluated], dtype=float)
            for name in AGGREGATES
        },
    )
    if not all(np.isfinite(values).all() for values in (evaluations.loss, evaluations.accuracy)):
        bad = evaluations.round[~np.isfinite(evaluations.loss + evaluations.accuracy).all(axis=1)]
        notes.append(f"its evaluation is not finite from round {bad[0]} on")
    return Records(tasks, rounds, evaluations, tuple(notes))


def _width(record: Mapping[str, Any]) -> int:
    weights = record.get("weights")
    return len(weights) if isinstance(weights, list) else 0


def _row(values: Any, m: int) -> list[float]:
    fits = isinstance(values, list) and len(values) == m
    return [_number(value) for value in values] if fits else [math.nan] * m


def _number(value: Any) -> float:
    try:
        return float(value) if is_number(value) else math.nan
    except OverflowError:
        return math.inf


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"
