"""Every method with every seed: `fedhv.compare`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from fedhv.interface.documented import shares_arguments
from fedhv.interface.single import run
from fedhv.interface.surroundings import study_folder, warn_of_scales, watched, with_problem
from fedhv.methods import METHODS, Method
from fedhv.problem.problem import Problem
from fedhv.report.compared import Study
from fedhv.runs.back import check_resume_from
from fedhv.runs.baselines.methods import check_baselines
from fedhv.runs.config import Setting
from fedhv.runs.defaults import EXECUTORS, SEEDS
from fedhv.runs.executors import check_executor
from fedhv.runs.rates import Choice, at_rates, best_rates
from fedhv.runs.rates_file import write_rates
from fedhv.runs.reference import Reference
from fedhv.runs.resolve import resolve, resolve_reference
from fedhv.runs.study import run_study, without_diverged
from fedhv.simulation.observer import Observer


@shares_arguments(run)
def compare(
    what: str | Setting | Problem,
    methods: Sequence[str | Method] = tuple(METHODS),
    seeds: Sequence[int] = SEEDS,
    *,
    local_lrs: Sequence[float] | None = None,
    rounds: int | None = None,
    out: str | Path | None = None,
    jobs: int | None = None,
    executor: str = EXECUTORS[0],
    engine: str = "auto",
    device: str = "auto",
    precision: str = "auto",
    reference: str | Path | Reference | Sequence[float] | Mapping[str, float] | None = None,
    init: Any = None,
    resume_from: int | None = None,
    fresh: bool = False,
    baselines: Sequence[str] = (),
    override: Iterable[str] = (),
    data: str | None = None,
    observer: Observer | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Study:
    """Run every method with every seed on one setting.

    Finished runs in `out` are read, and interrupted ones are resumed. All runs of FedHV share one reference: the given
    one, or one that is calibrated first and written to `out/reference.toml`. If several methods need a reference, it is
    calibrated with FedHV's learning rates, or with those of the first method if FedHV is not among them.

    Args:
        what: A setting's name or TOML file, a `Setting`, or a `Problem`, which stays in this process.
        methods: Names, "package.module:Class" or `Method`s.
        seeds: The seeds; every method has one run per seed.
        local_lrs: Several local learning rates for every method, in place of its own. The reference is calibrated once,
            at the setting's rates. The result has the runs at each method's best rate, and its table says how it was
            chosen: on the examples that clients hold out, where `federation.validation` is set. `out/rates.json` has
            the choice. Rates with which a run diverges are not chosen.
        rounds: The number of rounds, instead of the setting's.
        out: The study's folder; without one the runs are kept in memory, and nothing can be resumed.
        jobs: The number of runs at a time. The default is one process per core; with the engine "stacked", all runs
            in one computation; on a Ray cluster, as many as fit.
        executor: "processes" of this machine, or "ray": every run is a task of the Ray cluster of this machine (or of
            RAY_ADDRESS), or of a cluster that is started here. The datasets must be at `data` on all machines. The
            study's folder need not be shared.
        engine: "auto" or an engine's name.
        resume_from: Take the runs that have gone further than this round back to it first, or to the last before it
            whose checkpoint was kept; then continue.
        fresh: Delete these runs and their calibration in `out` first.
        baselines: What the methods are compared with: "single-task" (a federated run for every task), "local" (every
            client alone), "pooled" (one model on all examples). Their learning rates are those of the setting's
            `baselines`, such as `override=["baselines.local.local_lr=0.03"]`, else those of `uniform`.

    Examples:
        >>> study = fedhv.compare("digits", ["uniform", "fixed"], seeds=[0], rounds=2, participants=2)
        >>> [run.method for run in study]
        ['uniform', 'fixed']
    """
    check_executor(executor, jobs, own=isinstance(what, Problem))
    if resume_from is not None:
        check_resume_from(resume_from, None if out is None else Path(out), fresh)
    check_list("methods", methods)
    seeds = seeds_of(seeds)
    changes = changes_of(compare, settings, override)
    setting, problem = resolve(what, changes, rounds, data, init)
    chosen = [setting.chosen(method) for method in methods]
    check_applied(changes, methods)
    check_distinct(
        "methods",
        [method.label for method in chosen],
        " Variants of a method need one study each.",
    )
    check_list("baselines", baselines)
    if local_lrs is not None:
        check_list("local_lrs", local_lrs)
    check_baselines(baselines)
    check_model(problem)  # bad input is found before anything is written
    given = resolve_reference(reference, setting, problem)
    check_reference_taken(given, chosen)
    with study_folder(out) as folder, watched(observer, quiet) as watch:
        warn_of_scales(problem, given, None if observer is None else watch)
        study = partial(
            run_study,
            setting,
            problem,
            chosen if local_lrs is None else at_rates(chosen, local_lrs),
            seeds,
            folder,
            usual=chosen,
            own=isinstance(what, Problem),
            given=given,
            jobs=jobs,
            executor=executor,
            engine=engine,
            device=device,
            precision=precision,
            data=data,
            init=init,
            resume_from=resume_from,
            fresh=fresh,
            baselines=baselines,
            observer=watch,
        )
        if local_lrs is None:
            best = Choice(tuple(study()), "", {})
        else:  # a rate with which a run diverges is one that is not chosen
            best = best_rates(without_diverged(study), chosen, local_lrs, seeds)
        if best.rates and out:
            write_rates(folder, best.rates)
        runs = [with_problem(run, what) for run in best.runs]
        kept = tuple(runs) if out else tuple(run.in_memory() for run in runs)
        result = Study(kept, folder if out else None, best.how, best.rates)
    if observer is None:
        for each in result:
            each.summary.warn()
    return result
