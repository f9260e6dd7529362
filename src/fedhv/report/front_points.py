"""The front of finished runs: its points, what is dominated, hypervolumes and attainment.

Hypervolumes and attainment surfaces are moocore's: exact, of the points of one seed, then a mean and a Student
interval over seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedhv.report.front import SPACES, Front, FrontPoint, MethodFront
from fedhv.runs.fronts import FrontMethod
from fedhv.runs.record import Run
from fedhv.support.errors import InputError


def moocore() -> Any:
    """The package moocore. Without it, the error says what to install."""
    try:
        import moocore as package
    except ImportError:
        raise InputError("Fronts need moocore: pip install 'fedhv[fronts]'.") from None
    return package


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
    shown = tuple(replace(point, nondominated=flags[id(point)]) for point in points)
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


def _attainment(points: Sequence[FrontPoint], package: Any) -> tuple[tuple[float, ...], ...]:
    """The accuracies that half of the seeds attain, for two tasks and several points."""
    if len(points[0].scores) != 2 or len({repr(point.value) for point in points}) < 2:
        return ()
    errors = np.array([[100.0 - score for score in point.scores] for point in points])
    seeds = np.array([point.seed for point in points])
    surface = package.eaf(errors, sets=seeds, percentiles=[50])
    return tuple((100.0 - float(x), 100.0 - float(y)) for x, y, _ in surface)
