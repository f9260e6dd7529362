"""Fronts: the points of methods along preferences or knobs, and what dominates what.

A task's score is its main metric, or its accuracy in percent where it has no metric; losses are test losses.
`front_points` makes a front of finished runs, `front_files` writes it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedhv.protocol.evaluation import ACCURACY
from fedhv.runs.fronts import DivergedPoint
from fedhv.support.statistics import Paired

SCORE, LOSS = "score", "loss"
"""A front is judged in the space of the tasks' scores and in that of their test losses."""


@dataclass(frozen=True)
class Judged:
    """What a task is judged by: the name of its main metric, or accuracy, and which direction is better."""

    name: str = ACCURACY
    higher: bool = True

    @property
    def sign(self) -> float:
        """What makes smaller values better."""
        return -1.0 if self.higher else 1.0

    @property
    def unit(self) -> str:
        """The name for axes and headings."""
        return "accuracy (%)" if self.name == ACCURACY else f"{self.name} {'↑' if self.higher else '↓'}"


@dataclass(frozen=True)
class FrontPoint:
    """One run of a front.

    Attributes:
        value: The preferences or the value of the knob; None for a method beside the fronts.
        seed: Of the run.
        run: Its folder, seen from the front's.
        scores: The main metric of every task, or its accuracy in percent.
        losses: The test loss of every task.
        training_losses: The last reported loss of every task, if there are reports.
        weights: The mean task weights over all rounds.
        nondominated: Whether no other point of this method and seed dominates it: is better in one score and in none
            worse.
    """

    value: Any
    seed: int
    run: str
    scores: tuple[float, ...]
    losses: tuple[float, ...]
    training_losses: tuple[float, ...] | None
    weights: tuple[float, ...]
    nondominated: bool = True


@dataclass(frozen=True)
class MethodFront:
    """The points of one method, and what they come to.

    Attributes:
        label: The name in tables and figures.
        method: The method's name.
        over: What varies; None for a method beside the fronts.
        points: Every run.
        hypervolume: By space the exact hypervolume of every seed's points; of scores if all are accuracies.
        attainment: For two tasks the points of the median attainment surface, in scores.
    """

    label: str
    method: str
    over: str | None
    points: tuple[FrontPoint, ...]
    hypervolume: dict[str, dict[int, float]]
    attainment: tuple[tuple[float, ...], ...] = ()

    def means(self) -> list[tuple[Any, np.ndarray, np.ndarray]]:
        """(value, mean scores, mean losses) of every point over seeds, in the order of the values."""
        found: dict[str, list[FrontPoint]] = {}
        for point in self.points:
            found.setdefault(repr(point.value), []).append(point)
        return [
            (own[0].value, np.mean([p.scores for p in own], axis=0), np.mean([p.losses for p in own], axis=0))
            for own in found.values()
        ]


@dataclass(frozen=True)
class Front:
    """The result of `fedhv.front`.

    Attributes:
        setting: The setting's name.
        tasks: The names of its tasks.
        rounds: That every run was to have.
        seeds: Of every point.
        reference: The reference of hypervolumes by space: accuracy 0, and r_eval for losses.
        methods: The fronts, then the methods beside them.
        folder: Where the runs and `front.json` are; None if they were not kept.
        judged: What every task is judged by; accuracies if it is empty.
        diverged: The points that are left out because a run of theirs diverged.
    """

    setting: str
    tasks: tuple[str, ...]
    rounds: int
    seeds: tuple[int, ...]
    reference: dict[str, float]
    methods: tuple[MethodFront, ...]
    folder: Path | None = field(default=None, compare=False)
    judged: tuple[Judged, ...] = ()
    diverged: tuple[DivergedPoint, ...] = ()

    @property
    def mains(self) -> tuple[Judged, ...]:
        """What every task is judged by."""
        return self.judged or (Judged(),) * len(self.tasks)

    @property
    def by_accuracy(self) -> bool:
        """Whether every task is judged by its accuracy, as in the paper."""
        return all(each.name == ACCURACY for each in self.mains)

    @property
    def spaces(self) -> tuple[str, ...]:
        """The spaces with hypervolumes. Metrics such as RMSE have no reference that fits all problems."""
        return (SCORE, LOSS) if self.by_accuracy else (LOSS,)

    def differences(self) -> list[dict[str, Any]]:
        """The paired differences of hypervolumes, seed by seed, for every two methods that have a front."""
        pairs = itertools.combinations([each for each in self.methods if each.over is not None], 2)
        return [
            {"methods": [one.label, other.label]}
            | {
                space: seed_interval([one.hypervolume[space][s] - other.hypervolume[space][s] for s in self.seeds])
                for space in self.spaces
            }
            for one, other in pairs
        ]

    def dominated(self) -> list[dict[str, Any]]:
        """Which mean points of a method have a better mean point in another method's front, by space."""
        found = []
        for space in (SCORE, LOSS):
            at = {
                each.label: [
                    as_costs(scores, self.mains) if space == SCORE else losses for _, scores, losses in each.means()
                ]
                for each in self.methods
            }
            for one, other in itertools.permutations(self.methods, 2):
                if other.over is None:
                    continue
                count = sum(any(dominates(q, p) for q in at[other.label]) for p in at[one.label])
                found.append(
                    {
                        "space": space,
                        "method": one.label,
                        "by": other.label,
                        "dominated": count,
                        "points": len(at[one.label]),
                    }
                )
        return found

    def as_dict(self) -> dict[str, Any]:
        """As `front.json` has it."""
        from fedhv.report.front_files import front_record

        return front_record(self)

    def csv(self) -> str:
        """Every point as a row."""
        from fedhv.report.front_files import front_csv

        return front_csv(self)

    def write(self, folder: Path, figures: bool = True) -> list[Path]:
        """Write `front.json` and `front.csv`, and the figure if matplotlib is there; returns the files."""
        from fedhv.report.front_files import write_front

        return write_front(self, folder, figures)

    def figure(self, stem: Path) -> list[Path]:
        """Draw the fronts as `stem`.png and `stem`.pdf."""
        from fedhv.report.front_files import draw_front

        return draw_front(self, stem)


def as_costs(scores: Any, mains: Sequence[Judged]) -> np.ndarray:
    """Scores with the signs that make smaller values better; one that is not defined is the worst."""
    found: np.ndarray = np.asarray(scores, dtype=float) * [main.sign for main in mains]
    return np.where(np.isnan(found), np.inf, found)


def dominates(q: np.ndarray, p: np.ndarray) -> bool:
    """Whether q is nowhere larger than p and somewhere smaller."""
    return bool((q <= p).all() and (q < p).any())


def seed_interval(values: Sequence[float]) -> dict[str, float | None]:
    """Mean and 95 % Student interval over seeds; no interval for one seed."""
    if len(values) < 2:
        return {"mean": values[0], "low": None, "high": None}
    found = Paired.of(values)
    return {"mean": found.mean, "low": found.low, "high": found.high}
