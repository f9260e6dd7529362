"""The front of finished runs: its points, what is dominated, hypervolumes and attainment.

Hypervolumes and attainment surfaces are moocore's: exact, of the points of one seed, then a mean and a Student
interval over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedhv.protocol.evaluation import ACCURACY
from fedhv.report.front import LOSS, SCORE, Front, FrontPoint, Judged, MethodFront, as_costs
from fedhv.runs.fronts import DivergedPoint, FrontMethod
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
    diverged: Sequence[DivergedPoint] = (),
) -> Front:
    """The front of finished runs; for every method its runs, in any order. `diverged` are points without runs."""
    mains = tuple(Judged(task.main.name, task.main.higher) for task in found[0][1][0].summary.tasks)
    fronts = [_method_front(each, runs, seeds, loss_reference, folder, mains) for each, runs in found]
    first = found[0][1][0]
    rounds = first.planned or first.summary.rounds  # a run may have ended early, by `evaluation.patience`
    made = Front(setting, tuple(tasks), rounds, tuple(seeds), {}, tuple(fronts), folder, mains, tuple(diverged))
    return replace(made, reference={space: {SCORE: 0.0, LOSS: loss_reference}[space] for space in made.spaces})


def _method_front(
    each: FrontMethod, runs: Sequence[Run], seeds: Sequence[int], reference: float, folder: Path,
    mains: Sequence[Judged],
) -> MethodFront:  # fmt: skip
    by_place = {run.folder: run for run in runs}
    points = [
        _point(value, by_place[variant.place(folder, seed)], folder, mains)
        for value, variant in zip(each.values, each.variants, strict=True)
        for seed in seeds
    ]
    package, marked = moocore(), []
    by_accuracy = all(main.name == ACCURACY for main in mains)
    volumes: dict[str, dict[int, float]] = {space: {} for space in ((SCORE, LOSS) if by_accuracy else (LOSS,))}
    for seed in seeds:
        own = [point for point in points if point.seed == seed]
        losses = np.array([point.losses for point in own])
        kept = package.is_nondominated(as_costs([point.scores for point in own], mains), keep_weakly=True)
        marked += [(point, bool(keep)) for point, keep in zip(own, kept, strict=True)]
        m = len(mains)
        if by_accuracy:
            errors = np.array([[100.0 - score for score in point.scores] for point in own])
            volumes[SCORE][seed] = float(package.hypervolume(errors / 100, ref=np.ones(m)))
        volumes[LOSS][seed] = float(package.hypervolume(losses, ref=np.full(m, reference)))
    flags = {id(point): keep for point, keep in marked}
    shown = tuple(replace(point, nondominated=flags[id(point)]) for point in points)
    return MethodFront(each.label, each.method.label, each.over, shown, volumes, _attainment(points, mains, package))


def _point(value: Any, run: Run, folder: Path, mains: Sequence[Judged]) -> FrontPoint:
    summary, rounds = run.summary, run.rounds
    reports = [each.report for each in rounds if each.report is not None]
    assert run.folder is not None
    return FrontPoint(
        value=value,
        seed=run.seed,
        run=run.folder.relative_to(folder).as_posix(),
        scores=tuple(
            task.main.value if task.main.name == main.name else math.nan
            for task, main in zip(summary.tasks, mains, strict=True)
        ),
        losses=tuple(task.loss for task in summary.tasks),
        training_losses=tuple(reports[-1]) if reports else None,
        weights=tuple(float(w) for w in np.mean([each.weights for each in rounds], axis=0)),
    )


def _attainment(points: Sequence[FrontPoint], mains: Sequence[Judged], package: Any) -> tuple[tuple[float, ...], ...]:
    """The scores that half of the seeds attain, for two tasks and several points."""
    if len(mains) != 2 or len({repr(point.value) for point in points}) < 2:
        return ()
    seeds = np.array([point.seed for point in points])
    surface = package.eaf(as_costs([point.scores for point in points], mains), sets=seeds, percentiles=[50])
    return tuple((mains[0].sign * float(x), mains[1].sign * float(y)) for x, y, _ in surface)
