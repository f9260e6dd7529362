"""The fronts of methods over preferences, fixed weights or knobs: `fedhv.front`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fedhv.engines.trial_run import check_model
from fedhv.interface.checks import (
    changes_of,
    check_applied,
    check_distinct,
    check_list,
    check_reference_taken,
    seeds_of,
)
from fedhv.interface.comparing import compare
from fedhv.interface.documented import shares_arguments
from fedhv.interface.surroundings import study_folder, watched
from fedhv.methods import Method
from fedhv.problem.problem import Problem
from fedhv.report.choices import point_folders
from fedhv.report.front import Front
from fedhv.report.front_files import JSON as FRONT
from fedhv.report.front_points import make_front, moocore
from fedhv.runs.config import Setting
from fedhv.runs.defaults import SEEDS
from fedhv.runs.fronts import beside as one_point
from fedhv.runs.fronts import check_front_ranges, check_points, front_of, whole_points
from fedhv.runs.reference import Reference
from fedhv.runs.resolve import resolve, resolve_reference
from fedhv.runs.study import run_study, without_diverged
from fedhv.runs.tuning import own_ranges
from fedhv.runs.variants import check_includes
from fedhv.simulation.observer import Observer


@shares_arguments(compare)
def front(
    what: str | Setting | Problem,
    methods: Sequence[str | Method] = ("fixed",),
    points: int = 9,
    *,
    beside: Sequence[str | Method] = (),
    seeds: Sequence[int] = SEEDS,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    rounds: int | None = None,
    out: str | Path | None = None,
    jobs: int | None = None,
    engine: str = "auto",
    device: str = "auto",
    precision: str = "auto",
    reference: str | Path | Reference | Sequence[float] | Mapping[str, float] | None = None,
    override: Iterable[str] = (),
    data: str | None = None,
    observer: Observer | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Front:
    """The fronts of methods: each with several preferences, fixed weights or values of its knob, as one study.

    The same call with the same `out` resumes it. `out/front.json` and `out/front.csv` have every point, the exact
    hypervolumes and the median attainment surface (by moocore), `out/front.png` the figure. A point of which a run
    diverged with any seed is left out, and `Front.diverged` names it.

    Args:
        methods: Names or `Method`s; "NAME@KEY" varies the hyper-parameter KEY. By default preferences vary where a
            method takes them, as the weights of "fixed", and else the knob.
        points: The points of each front.
        beside: Methods that are shown as one point beside the fronts.
        seeds: Every point has one run per seed.
        ranges: The range of a hyper-parameter by name, such as `{"factor": (1.05, 4.0), "stch.mu": (0.05, 0.5)}`.
        out: The folder; without one nothing is kept but the result.
    """
    moocore()  # found missing before hours of runs
    check_list("methods", methods)
    check_list("beside", beside)
    seeds = seeds_of(seeds)
    check_points(points)
    changes = changes_of(front, settings, override)
    setting, problem = resolve(what, changes, rounds, data)
    m = len(problem.tasks)
    chosen = []
    for each in methods:
        name, _, over = each.partition("@") if isinstance(each, str) else (each, "", "")
        chosen.append((setting.chosen(name), over or None))
    checked = check_front_ranges(ranges or {}, chosen)
    found = [front_of(method, over, points, m, own_ranges(checked, method.label)) for method, over in chosen]
    found += [one_point(setting.chosen(each)) for each in beside]
    check_applied(changes, [*methods, *beside])
    check_distinct("methods", [each.label for each in found])
    given = resolve_reference(reference, setting, problem)
    check_reference_taken(given, [each.method for each in found])
    check_model(problem)
    with study_folder(out) as folder, watched(observer, quiet) as watch:
        names = {variant.name for each in found for variant in each.variants}
        check_includes(folder / FRONT, point_folders, names, "Show these points too")
        study = partial(
            run_study,
            setting,
            problem,
            [variant for each in found for variant in each.variants],
            seeds,
            folder,
            own=isinstance(what, Problem),
            given=given,
            jobs=jobs,
            engine=engine,
            device=device,
            precision=precision,
            data=data,
            observer=watch,
        )
        runs = without_diverged(study)
        kept, diverged = whole_points(found, seeds, {run.folder for run in runs}, folder)
        for lost in diverged:
            watch.message(f"{lost}: left out of the front.")
        tasks = [task.name for task in problem.tasks]
        owners = [(each, {variant.place(folder, s) for variant in each.variants for s in seeds}) for each in kept]
        sorted_runs = [(each, [run for run in runs if run.folder in places]) for each, places in owners]
        result = make_front(setting.name, tasks, seeds, setting.evaluation.reference, sorted_runs, folder, diverged)
        if out:
            result.write(folder, figures=_has_matplotlib())
        return result if out else replace(result, folder=None)


def _has_matplotlib() -> bool:
    from importlib.util import find_spec

    return find_spec("matplotlib") is not None
