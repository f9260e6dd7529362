"""Learning rates and knobs, with the same number of trials for every method: `fedhv.tune`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fedhv.engines.trial_run import check_model
from fedhv.interface.checks import changes_of, check_applied, check_distinct, check_list, seeds_of
from fedhv.interface.comparing import compare
from fedhv.interface.documented import shares_arguments
from fedhv.interface.surroundings import study_folder, watched
from fedhv.methods import METHODS, Method
from fedhv.problem.problem import Problem
from fedhv.runs.config import Setting
from fedhv.runs.halving import Tuned, halve
from fedhv.runs.resolve import resolve, resolve_setting
from fedhv.runs.study import run_study
from fedhv.runs.tuning import check_ranges, criterion
from fedhv.simulation.observer import Observer
from fedhv.support.errors import InputError
from fedhv.support.numbers import is_whole


@shares_arguments(compare)
def tune(
    what: str | Setting | Problem,
    methods: Sequence[str | Method] = tuple(METHODS),
    trials: int = 9,
    *,
    finalists: int = 1,
    seeds: Sequence[int] = (0,),
    by: str | None = None,
    validation: float = 0.2,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    rounds: int | None = None,
    out: str | Path | None = None,
    jobs: int | None = None,
    engine: str = "auto",
    device: str = "auto",
    precision: str = "auto",
    override: Iterable[str] = (),
    data: str | None = None,
    observer: Observer | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Tuned:
    """Find learning rates and the rules' knobs, with the same number of trials for every method.

    Clients hold out examples, and trials are judged on these; the test examples are not looked at. Trials are stopped
    by successive halving, and the runs of a rung are one study. The same call with the same `out` resumes it. The
    result's `setting` has the values found; `out/tuned.toml` is the same setting as a file.

    Args:
        methods: Names, "package.module:Class" or `Method`s.
        trials: The trials of each method. The first has the setting's values.
        finalists: How many trials of each method have all rounds; the best of them is chosen. With 1 the choice is made
            after a third of the rounds, and rates that are best then can be too large for all.
        seeds: The seeds of every trial; its score is the mean over them.
        by: "mean_accuracy", "worst_accuracy", "mean_loss", "hypervolume" or "main", the mean of the tasks' main
            metrics. By default "main" if a task has a metric, else "mean_accuracy".
        validation: The share of its examples that every client holds out, unless the setting or the problem has one.
        ranges: Other ranges to search by name, such as `{"local_lr": (0.1, 1.0), "stch.mu": (0.05, 0.5)}`.
        rounds: The rounds of the last rung, instead of the setting's.
        out: The folder of the trials and of `tuned.toml`; nothing is kept without one.
    """
    check_list("methods", methods)
    seeds = seeds_of(seeds)
    if not is_whole(trials) or trials < 1:
        raise InputError(f"`trials` should be at least 1. Found {trials!r}.")
    if not is_whole(finalists) or not 1 <= finalists <= trials:
        raise InputError(f"`finalists` should be from 1 to {trials}, the number of trials. Found {finalists!r}.")
    changes = changes_of(tune, settings, override)
    original = resolve_setting(what, changes)  # with its own rounds: those of the trials are no part of the result
    share = original.federation.validation or validation
    own = what.validation if isinstance(what, Problem) else None
    held = [f"federation.validation={share}"] if own is None else []
    setting, problem = resolve(what, [*changes, *held, "evaluation.on=validation"], rounds, data)
    chosen = [setting.chosen(method) for method in methods]
    check_applied(changes, methods)
    check_distinct("methods", [method.label for method in chosen])
    checked = check_ranges(ranges or {}, chosen)
    judged = criterion(by, problem.tasks)
    check_model(problem)
    with study_folder(out) as folder, watched(observer, quiet) as watch:
        study = partial(
            run_study,
            own=isinstance(what, Problem),
            jobs=jobs,
            engine=engine,
            device=device,
            precision=precision,
            data=data,
        )
        found = halve(
            setting,
            problem,
            chosen,
            seeds,
            folder,
            study,
            trials=trials,
            finalists=finalists,
            by=judged,
            share=share if own is None else len(own.indices) / (len(own.indices) + len(problem.clients.indices)),
            ranges=checked,
            original=original,
            observer=watch,
        )
        return found if out else replace(found, folder=None)
