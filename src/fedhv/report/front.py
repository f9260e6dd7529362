"""Fronts: the points of methods along preferences or knobs, what dominates what, hypervolumes and attainment.

Everything is computed from finished runs. Scores are accuracies in percent, larger is better; losses are test losses.
Hypervolumes and attainment surfaces are moocore's: exact, of the points of one seed, then a mean and a Student
interval over seeds.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedhv.runs.fronts import FrontMethod
from fedhv.runs.record import Run
from fedhv.support.errors import InputError
from fedhv.support.files import write_atomic
from fedhv.support.jsonfile import write_object
from fedhv.support.statistics import Paired, Spread

JSON, CSV, FIGURE = "front.json", "front.csv", "front"
"""The files of a front in its folder."""
VERSION = 1
"""Of the format of `front.json`."""
SPACES = ("score", "loss")
"""A front is judged in the space of accuracies and in that of test losses."""


def moocore() -> Any:
    """The package moocore. Without it, the error says what to install."""
    try:
        import moocore as package
    except ImportError:
        raise InputError("Fronts need moocore: pip install 'fedhv[fronts]'.") from None
    return package


@dataclass(frozen=True)
class FrontPoint:
    """One run of a front.

    Attributes:
        value: The preferences or the value of the knob; None for a method beside the fronts.
        seed: Of the run.
        run: Its folder, seen from the front's.
        scores: The accuracy of every task in percent.
        losses: The test loss of every task.
        training_losses: The last reported loss of every task, if there are reports.
        weights: The mean task weights over all rounds.
        nondominated: Whether no other point of this method and seed is better in all scores.
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
        hypervolume: By space the exact hypervolume of every seed's points.
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
        rounds: Of every run.
        seeds: Of every point.
        reference: The reference of hypervolumes by space: accuracy 0, and r_eval for losses.
        methods: The fronts, then the methods beside them.
        folder: Where the runs and `front.json` are; None if they were not kept.
    """

    setting: str
    tasks: tuple[str, ...]
    rounds: int
    seeds: tuple[int, ...]
    reference: dict[str, float]
    methods: tuple[MethodFront, ...]
    folder: Path | None = field(default=None, compare=False)

    def differences(self) -> list[dict[str, Any]]:
        """The paired differences of hypervolumes, seed by seed, for every two methods that have a front."""
        pairs = itertools.combinations([each for each in self.methods if each.over is not None], 2)
        return [
            {"methods": [one.label, other.label]}
            | {
                space: _interval([one.hypervolume[space][s] - other.hypervolume[space][s] for s in self.seeds])
                for space in SPACES
            }
            for one, other in pairs
        ]

    def dominated(self) -> list[dict[str, Any]]:
        """Which mean points of a method have a better mean point in another method's front, by space."""
        found = []
        for space, sign in (("score", -1.0), ("loss", 1.0)):
            at = {
                each.label: [sign * row[1 if space == "score" else 2] for row in each.means()] for each in self.methods
            }
            for one, other in itertools.permutations(self.methods, 2):
                if other.over is None:
                    continue
                count = sum(any(_dominates(q, p) for q in at[other.label]) for p in at[one.label])
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
        return {
            "version": VERSION,
            "setting": self.setting,
            "tasks": list(self.tasks),
            "rounds": self.rounds,
            "seeds": list(self.seeds),
            "reference": self.reference,
            "methods": [
                {
                    "label": each.label,
                    "method": each.method,
                    "over": each.over,
                    "points": [
                        {
                            "value": list(p.value) if isinstance(p.value, tuple) else p.value,
                            "seed": p.seed,
                            "run": p.run,
                            "scores": list(p.scores),
                            "losses": list(p.losses),
                            "training_losses": None if p.training_losses is None else list(p.training_losses),
                            "weights": list(p.weights),
                            "nondominated": p.nondominated,
                        }
                        for p in each.points
                    ],
                    "hypervolume": {
                        space: _interval(list(each.hypervolume[space].values()))
                        | {"by_seed": {str(seed): value for seed, value in each.hypervolume[space].items()}}
                        for space in SPACES
                    },
                    "attainment": [list(point) for point in each.attainment],
                }
                for each in self.methods
            ],
            "differences": self.differences(),
            "dominated": self.dominated(),
        }

    def csv(self) -> str:
        """Every point as a row."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        kinds = ("score", "loss", "training_loss", "weight")
        writer.writerow(
            ["method", "over", "value", "seed", "nondominated", *(f"{k}/{t}" for k in kinds for t in self.tasks)]
        )
        for each in self.methods:
            for p in each.points:
                value = " ".join(map(str, p.value)) if isinstance(p.value, tuple) else p.value
                training = p.training_losses or ("",) * len(self.tasks)
                row = [
                    each.label,
                    each.over,
                    value,
                    p.seed,
                    p.nondominated,
                    *p.scores,
                    *p.losses,
                    *training,
                    *p.weights,
                ]
                writer.writerow(["" if cell is None else cell for cell in row])
        return text.getvalue()

    def write(self, folder: Path, figures: bool = True) -> list[Path]:
        """Write `front.json` and `front.csv`, and the figure if matplotlib is there; returns the files."""
        write_object(folder / JSON, self.as_dict())
        write_atomic(folder / CSV, self.csv())
        return [folder / JSON, folder / CSV, *(self.figure(folder / FIGURE) if figures else [])]

    def figure(self, stem: Path) -> list[Path]:
        """Draw the fronts as `stem`.png and `stem`.pdf."""
        from fedhv.report.figures.drawing import drawing, write_figure
        from fedhv.report.figures.fronts import front_figure

        with drawing():
            return write_figure(stem, front_figure(self))


def make_front(
    setting: str,
    tasks: Sequence[str],
    seeds: Sequence[int],
    loss_reference: float,
    found: Sequence[tuple[FrontMethod, list[Run]]],
    folder: Path,
) -> Front:
    """The front of finished runs; for every method its runs, in any order."""
    fronts = [_method_front(each, runs, seeds, loss_reference, folder) for each, runs in found]
    rounds = found[0][1][0].summary.rounds
    reference = {"score": 0.0, "loss": loss_reference}
    return Front(setting, tuple(tasks), rounds, tuple(seeds), reference, tuple(fronts), folder)


def _method_front(
    each: FrontMethod, runs: Sequence[Run], seeds: Sequence[int], reference: float, folder: Path
) -> MethodFront:
    by_place = {run.folder: run for run in runs}
    points = [
        _point(value, by_place[variant.place(folder, seed)], folder)
        for value, variant in zip(each.values, each.variants, strict=True)
        for seed in seeds
    ]
    package, marked = moocore(), []
    volumes: dict[str, dict[int, float]] = {space: {} for space in SPACES}
    for seed in seeds:
        own = [point for point in points if point.seed == seed]
        errors = np.array([[100.0 - score for score in point.scores] for point in own])
        losses = np.array([point.losses for point in own])
        kept = package.is_nondominated(errors, keep_weakly=True)
        marked += [(point, bool(keep)) for point, keep in zip(own, kept, strict=True)]
        m = errors.shape[1]
        volumes["score"][seed] = float(package.hypervolume(errors / 100, ref=np.ones(m)))
        volumes["loss"][seed] = float(package.hypervolume(losses, ref=np.full(m, reference)))
    flags = {id(point): keep for point, keep in marked}
    shown = tuple(_flagged(point, flags[id(point)]) for point in points)
    return MethodFront(each.label, each.method.label, each.over, shown, volumes, _attainment(points, package))


def _point(value: Any, run: Run, folder: Path) -> FrontPoint:
    summary, rounds = run.summary, run.rounds
    reports = [each.report for each in rounds if each.report is not None]
    assert run.folder is not None
    return FrontPoint(
        value=value,
        seed=run.seed,
        run=run.folder.relative_to(folder).as_posix(),
        scores=tuple(task.accuracy for task in summary.tasks),
        losses=tuple(task.loss for task in summary.tasks),
        training_losses=tuple(reports[-1]) if reports else None,
        weights=tuple(float(w) for w in np.mean([each.weights for each in rounds], axis=0)),
    )


def _flagged(point: FrontPoint, nondominated: bool) -> FrontPoint:
    return replace(point, nondominated=nondominated)


def _attainment(points: Sequence[FrontPoint], package: Any) -> tuple[tuple[float, ...], ...]:
    """The accuracies that half of the seeds attain, for two tasks and several points."""
    if len(points[0].scores) != 2 or len({repr(point.value) for point in points}) < 2:
        return ()
    errors = np.array([[100.0 - score for score in point.scores] for point in points])
    seeds = np.array([point.seed for point in points])
    surface = package.eaf(errors, sets=seeds, percentiles=[50])
    return tuple((100.0 - float(x), 100.0 - float(y)) for x, y, _ in surface)


def _dominates(q: np.ndarray, p: np.ndarray) -> bool:
    """Whether q is nowhere larger than p and somewhere smaller."""
    return bool((q <= p).all() and (q < p).any())


def _interval(values: Sequence[float]) -> dict[str, float | None]:
    """Mean and 95 % Student interval over seeds; no interval for one seed."""
    if len(values) < 2:
        return {"mean": values[0], "low": None, "high": None}
    found = Paired.of(values)
    return {"mean": found.mean, "low": found.low, "high": found.high}


def front_rows(front: Front) -> list[tuple[str, ...]]:
    """(method, over, points, not dominated, hypervolume of accuracies, of losses) for a printed table."""
    rows = []
    for each in front.methods:
        kept = sum(point.nondominated for point in each.points)
        volumes = [Spread.of(list(each.hypervolume[space].values())).text(4) for space in SPACES]
        count = len(each.points) // len(front.seeds)
        rows.append((each.label, each.over or "one point", str(count), f"{kept / len(front.seeds):.1f}", *volumes))
    return rows
