"""A history as arrays. A damaged file gives notes, not errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedhv.protocol.evaluation import AGGREGATES
from fedhv.report.attendance import Attendance, attendance
from fedhv.report.incidents import Incidents
from fedhv.report.overclients import over_clients
from fedhv.runs.history import NAME, NotARound, lines
from fedhv.runs.summary import Summary
from fedhv.simulation.record import Round
from fedhv.support.wording import counted

Array = np.ndarray


@dataclass(frozen=True)
class Evaluations:
    """E evaluations of m tasks: `round` (E), `accuracy`, `loss` and `main` (E, m), `aggregates` name → (E).

    `main` is what every task is judged by: its first metric, or its accuracy.
    """

    round: Array
    accuracy: Array
    loss: Array
    main: Array
    aggregates: dict[str, Array]

    def __len__(self) -> int:
        return len(self.round)

    def values(self, metric: str) -> Array:
        """An aggregate by its name, `accuracy.2`, `loss.0` or `main.1` of a task; NaN where one is left out."""
        if metric in AGGREGATES:
            return self.aggregates.get(metric, np.full(len(self), math.nan))
        kind, _, task = metric.partition(".")
        column: Array = getattr(self, kind)[:, int(task)]
        return column

    def without(self, aggregate: str) -> Evaluations:
        """The same without an aggregate that is not comparable between the runs."""
        return replace(self, aggregates={name: each for name, each in self.aggregates.items() if name != aggregate})

    def lacks(self, metric: str) -> bool:
        """Whether it is an aggregate that is left out."""
        return metric in AGGREGATES and metric not in self.aggregates


@dataclass(frozen=True)
class Rounds:
    """T rounds: numbers from 1, weights, reports and slacks (T, m), and the costs of each round; NaN if unknown.

    `seconds` leave out those of compilation, `warm_up`; `shared` runs were computed together, on one clock.
    `absent` (T, m) is 1 where no client of the cohort had labels of a task.
    """

    number: Array
    weights: Array
    report: Array
    slack: Array
    floored: Array
    down: Array
    up: Array
    exchanges: Array
    seconds: Array
    absent: Array
    warm_up: Array
    shared: Array

    def __len__(self) -> int:
        return len(self.number)

    @property
    def last(self) -> int:
        """The number of the last round, 0 if there is none."""
        return int(self.number[-1]) if len(self.number) else 0


@dataclass(frozen=True)
class HistoryRecords:
    """The content of a history file.

    Attributes:
        tasks: Their names.
        rounds: Weights, slacks and costs.
        evaluations: Accuracies and losses.
        notes: Errors in the file.
        incidents: Floor hits, refused replies and the like.
        attendance: Who took part, where the history has it.
        over_clients: Scores at the clients, where they evaluate models.
    """

    tasks: tuple[str, ...]
    rounds: Rounds
    evaluations: Evaluations
    notes: tuple[str, ...]
    incidents: Incidents = field(default_factory=Incidents)
    attendance: Attendance | None = None
    over_clients: tuple[dict[str, Any], ...] = ()
    scored: tuple[str, ...] = ()


def read_rounds(folder: Path) -> HistoryRecords:
    """The history in a run's folder, up to the first line that cannot be read. A note states the line."""
    content, notes = _content(folder / NAME)
    rounds: list[Round] = []
    for number, _, found in lines(content):
        if isinstance(found, NotARound) and found.cut:
            notes.append(f"{NAME} ends in the middle of a line; the {counted(len(rounds), 'round')} before it are used")
        elif isinstance(found, NotARound):
            after = f"; only the {counted(len(rounds), 'round')} before it are used"
            notes.append(f"{NAME}, line {number} is not a round{after}")
            break
        elif rounds and found.number <= rounds[-1].number:
            notes.append(f"{NAME}, line {number} goes back to round {found.number}; only what is before it is used")
            break
        else:
            rounds.append(found)
    if len(rounds) > 1 and rounds[0].number != 1:
        notes.append(f"{NAME} starts with round {rounds[0].number}")
    elif len(rounds) > 1 and rounds[-1].number != len(rounds):
        notes.append(f"{NAME} leaves out {counted(rounds[-1].number - len(rounds), 'round')}")
    return _arrays(rounds, notes)


def conform(rounds: Rounds, evaluations: Evaluations, m: int) -> tuple[Rounds, Evaluations]:
    """The same with m tasks, for a run whose tasks are not known yet. Unknown values are NaN."""

    def wide(values: Array) -> Array:
        return values if values.shape[1] == m else np.full((len(values), m), math.nan)

    return (
        replace(
            rounds,
            weights=wide(rounds.weights),
            report=wide(rounds.report),
            slack=wide(rounds.slack),
            absent=wide(rounds.absent),
        ),
        replace(
            evaluations,
            accuracy=wide(evaluations.accuracy),
            loss=wide(evaluations.loss),
            main=wide(evaluations.main),
        ),
    )


def from_summary(summary: Summary, done: int = 0, there: bool = False) -> HistoryRecords:
    """One evaluation and the totals, for a finished run whose history is lost or holds only `done` rounds.

    `there` says that its file is there.
    """
    least = summary.min_report_slack
    totals = Round(
        number=summary.rounds,
        weights=summary.weights,
        slack=None if least is None else (least,) * len(summary.weights),
        floored=summary.floor_activations,
        downlink_bytes=summary.communication.downlink_bytes,
        uplink_bytes=summary.communication.uplink_bytes,
        exchanges=0,
        seconds=summary.seconds,
        warm_up=summary.warm_up_seconds,
        shared=summary.shared_clock or 1,
        evaluation=summary,
    )
    lost = (
        f"ends after round {done} of {summary.rounds}"
        if done
        else "has no rounds that can be read"
        if there
        else "is missing"
    )
    records = _arrays([totals], [f"{NAME} {lost}; only the final values are known"])
    return replace(records, rounds=replace(records.rounds, exchanges=np.full(1, math.nan)))


def _content(path: Path) -> tuple[bytes, list[str]]:
    try:
        return path.read_bytes(), []
    except FileNotFoundError:
        return b"", []
    except OSError as error:
        return b"", [f"{NAME} could not be read: {error.strerror or error}"]


def _arrays(rounds: Sequence[Round], notes: list[str]) -> HistoryRecords:
    evaluated = [(round.number, round.evaluation) for round in rounds if round.evaluation is not None]
    tasks = tuple(task.name for task in evaluated[0][1].tasks) if evaluated else ()
    m = len(tasks) or max((len(round.weights) for round in rounds), default=0)
    if any(len(evaluation.tasks) != m for _, evaluation in evaluated):
        notes.append(f"{NAME} changes the number of tasks; rounds with other than {m} show no task values")

    def column(value: Callable[[Round], float]) -> Array:
        return np.array([value(round) for round in rounds], dtype=float)

    def matrix(rows: Sequence[Sequence[float] | None]) -> Array:
        whole = [row if row is not None and len(row) == m else [math.nan] * m for row in rows]
        return np.array(whole, dtype=float).reshape(len(rows), m)

    evaluations = Evaluations(
        round=np.array([number for number, _ in evaluated], dtype=np.int64),
        accuracy=matrix([[task.accuracy for task in evaluation.tasks] for _, evaluation in evaluated]),
        loss=matrix([[task.loss for task in evaluation.tasks] for _, evaluation in evaluated]),
        main=matrix([[task.main.value for task in evaluation.tasks] for _, evaluation in evaluated]),
        aggregates={
            name: np.array([getattr(evaluation, name) for _, evaluation in evaluated], dtype=float)
            for name in AGGREGATES
        },
    )
    diverged = None
    if not all(np.isfinite(values).all() for values in (evaluations.loss, evaluations.accuracy)):
        bad = evaluations.round[~np.isfinite(evaluations.loss + evaluations.accuracy).all(axis=1)]
        diverged = int(bad[0])
        notes.append(f"its evaluation is not finite from round {diverged} on")
    arrays = Rounds(
        number=np.array([round.number for round in rounds], dtype=np.int64),
        weights=matrix([round.weights for round in rounds]),
        report=matrix([round.report for round in rounds]),
        slack=matrix([round.slack for round in rounds]),
        floored=column(lambda round: round.floored or 0),
        down=column(lambda round: round.downlink_bytes),
        up=column(lambda round: round.uplink_bytes),
        exchanges=column(lambda round: round.exchanges),
        seconds=column(lambda round: round.seconds),
        warm_up=column(lambda round: round.warm_up),
        shared=column(lambda round: round.shared),
        absent=matrix([[float(i in round.absent) for i in range(m)] for round in rounds]),
    )
    scored = tuple(task.scored for task in evaluated[0][1].tasks) if evaluated else ()
    shares = np.where(np.isfinite(evaluations.accuracy), evaluations.accuracy, 50.0)
    notes += [
        f"the accuracy of task '{task}' is not within 0 to 100 %: its score is no share of right answers"
        for task, values in zip(tasks, shares.T, strict=False)
        if values.min() < 0 or values.max() > 100
    ]
    return HistoryRecords(
        tasks,
        arrays,
        evaluations,
        tuple(notes),
        Incidents.of(rounds, diverged),
        attendance(rounds),
        over_clients(rounds, tasks),
        scored,
    )
