"""The public functions `run`, `calibrate`, `compare`, `tune` and `front`; they take the same arguments."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fedhv.engines import Choice, choose_engine
from fedhv.engines.rehearsal import rehearse
from fedhv.methods import METHODS, FedHV, Method
from fedhv.methods.base import needs_reference, takes_reference
from fedhv.problem.problem import Problem
from fedhv.protocol.scales import differ, uneven
from fedhv.report.compared import Study
from fedhv.report.front import Front, make_front, moocore
from fedhv.report.progress import shown
from fedhv.runs.back import check_resume_from, take_all_back
from fedhv.runs.baselines import check_baselines
from fedhv.runs.calibration import calibrated_under, find_reference
from fedhv.runs.config import Setting, as_overrides
from fedhv.runs.defaults import EXECUTORS, SEEDS
from fedhv.runs.folder import remove_run
from fedhv.runs.fronts import beside as one_point
from fedhv.runs.fronts import check_points, front_of
from fedhv.runs.halving import Tuned, halve
from fedhv.runs.job import Job
from fedhv.runs.prepare import prepare
from fedhv.runs.rates import at_rates, best_rates
from fedhv.runs.record import Run
from fedhv.runs.reference import Reference
from fedhv.runs.resolve import resolve, resolve_reference, resolve_setting
from fedhv.runs.study import check_executor, run_study
from fedhv.runs.tuning import check_ranges, criterion
from fedhv.simulation.observer import Announcing, Observer
from fedhv.support.errors import InputError
from fedhv.support.numbers import as_seed


def run(
    what: str | Setting | Problem,
    method: str | Method = "fedhv",
    *,
    seed: int = 0,
    rounds: int | None = None,
    out: str | Path | None = None,
    engine: str | Choice = "auto",
    device: str = "auto",
    precision: str = "auto",
    reference: str | Path | Reference | Sequence[float] | None = None,
    init: Any = None,
    resume: bool = False,
    resume_from: int | None = None,
    fresh: bool = False,
    override: Iterable[str] = (),
    data: str | None = None,
    observer: Observer | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Run:
    """Run one method on a setting or on your own problem.

    Args:
        what: A setting's name or TOML file, a `Setting`, or a `Problem`.
        method: A method's name, "package.module:Class", or a `Method`.
        seed: The seed of all random draws of the run.
        rounds: The number of rounds, instead of the setting's.
        out: The run's folder; nothing is written without one.
        engine: "auto", an engine's name, or a `Choice` that makes an engine.
        device: "auto", "cpu", "cuda", or "mps" (Apple's GPU).
        precision: "auto", "float32", "tf32" or "bf16".
        reference: For FedHV: a file, the name of one of the setting's references, or the losses themselves.
            Without one it is calibrated first.
        init: The initial model instead of its own initialisation: a run's folder, a file, a state dict, or a module.
        resume: Continue the run in `out`; a finished run is returned unchanged.
        resume_from: Go back to this round first, or to the last before it whose checkpoint was kept; then continue.
        fresh: Delete the run in `out` first, also if it has another setting or method.
        override: `section.key=value` changes of the setting, as on the command line.
        data: The folder of the datasets.
        observer: Receives the events of the run, instead of the progress bar.
        quiet: Show no progress. Progress is shown in terminals and notebooks only.
        settings: Keys of the setting's tables: `participants=3, local_steps=5, batch_size=16`.

    Examples:
        >>> result = fedhv.run("digits", "uniform", rounds=2, participants=2)
        >>> [task.name for task in result.tasks]
        ['clear', 'faint']
    """
    seed = as_seed(seed)
    changes = [*as_overrides(settings), *_listed(override)]
    setting, problem = resolve(what, changes, rounds, data, init)
    chosen = setting.chosen(method)
    _check_applied(changes, [method])
    given = resolve_reference(reference, setting, problem)
    if given is not None and not takes_reference(chosen):
        raise InputError(f"Method '{chosen.label}' takes no reference. Leave out --reference.")
    rehearse(problem)
    if isinstance(engine, Choice):
        choice = engine
    else:
        choice = choose_engine(engine, device, precision, problem, setting.plan(chosen, seed))
    job = Job(setting, problem, chosen, seed, choice, Path(out) if out else None, given)
    if resume_from is not None:
        check_resume_from(resume_from, job.folder, fresh)
    if fresh and job.folder is not None:
        remove_run(job.folder)
    if given is None and needs_reference(chosen):
        calibrated_under(setting, problem, data)  # bad input is found before anything is written
    job.open(resume or resume_from is not None)
    with _watched(observer, quiet, choice) as watch:
        if resume_from is not None and job.folder is not None:
            take_all_back([job.folder], resume_from, watch)
        _warn_of_scales(problem, given, None if observer is None else watch)
        ready = prepare(job, watch, data)
        finished = ready if isinstance(ready, Run) else ready.execute(watch)
    if observer is None:
        finished.summary.warn()
    return _with_problem(finished, what)


def calibrate(
    what: str | Setting | Problem,
    method: str | Method = FedHV.name,
    *,
    seeds: Sequence[int] | None = None,
    rounds: int | None = None,
    out: str | Path | None = None,
    engine: str | Choice = "auto",
    device: str = "auto",
    precision: str = "auto",
    override: Iterable[str] = (),
    data: str | None = None,
    observer: Observer | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Reference:
    """Calibrate FedHV's reference: the componentwise maximum of the reports of uniform-weight rounds, plus a margin.

    Args:
        what: As for `run`. The setting's `[calibration]` has the rounds, the seeds and the margin, and may name another
            setting for the calibration.
        method: The method whose learning rates are used.
        seeds: The seeds of the calibration runs, instead of the setting's.
        rounds: The rounds of every calibration run, instead of the setting's.
        out: The folder of the calibration runs; an interrupted calibration is resumed from it.
        engine: As for `run`.
        device: As for `run`.
        precision: As for `run`.
        override: As for `run`.
        data: As for `run`.
        observer: As for `run`.
        quiet: As for `run`.
        settings: As for `run`; `margin=0.2` is one of them.

    Examples:
        >>> reference = fedhv.calibrate("digits", rounds=2, participants=2)
        >>> result = fedhv.run("digits", rounds=1, participants=2, reference=reference)
    """
    changes = [*as_overrides(settings), *_listed(override)]
    changes += [] if rounds is None else [f"calibration.rounds={rounds}"]
    if seeds is not None:
        _several("seeds", seeds)
        changes.append(f"calibration.seeds={[as_seed(seed) for seed in seeds]}")
    setting = resolve_setting(what, changes)
    chosen = setting.chosen(method)
    _check_applied(changes, [method])
    under, problem = calibrated_under(setting, what if isinstance(what, Problem) else None, data)
    rehearse(problem)
    choice = engine if isinstance(engine, Choice) else choose_engine(
        engine, device, precision, problem, under.plan(chosen, seed=0)
    )  # fmt: skip
    with _watched(observer, quiet, choice) as watch:
        folder = Path(out) if out else None
        return find_reference(setting, chosen, problem, choice=choice, data=data, folder=folder, observer=watch)


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
    reference: str | Path | Reference | Sequence[float] | None = None,
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
        what: As for `run`; a `Problem` stays in this process.
        methods: Names, "package.module:Class" or `Method`s.
        seeds: The seeds; every method has one run per seed.
        local_lrs: Several local learning rates for every method, in place of its own. The reference is calibrated once,
            at the setting's rates. The result has the runs at each method's best rate, and its table says how it was
            chosen: on the examples that clients hold out, where `federation.validation` is set.
        rounds: The number of rounds, instead of the setting's.
        out: The study's folder; without one the runs are kept in memory, and nothing can be resumed.
        jobs: The number of runs at a time. The default is one process per core; with the engine "stacked", all runs
            in one computation; on a Ray cluster, as many as fit.
        executor: "processes" of this machine, or "ray": every run is a task of the Ray cluster of this machine (or of
            RAY_ADDRESS), or of a cluster that is started here. The datasets must be at `data` on all machines. The
            study's folder need not be shared.
        engine: "auto" or an engine's name.
        device: As for `run`.
        precision: As for `run`.
        reference: As for `run`.
        init: As for `run`.
        resume_from: Take the runs that have gone further than this round back to it first, as for `run`.
        fresh: Delete these runs and their calibration in `out` first.
        baselines: What the methods are compared with: "single-task" (a federated run for every task), "local" (every
            client alone), "pooled" (one model on all examples). Their learning rates are those of the setting's
            `baselines`, such as `override=["baselines.local.local_lr=0.03"]`, else those of `uniform`.
        override: As for `run`.
        data: As for `run`.
        observer: As for `run`.
        quiet: As for `run`.
        settings: As for `run`.

    Examples:
        >>> study = fedhv.compare("digits", ["uniform", "fixed"], seeds=[0], rounds=2, participants=2)
        >>> [run.method for run in study]
        ['uniform', 'fixed']
    """
    check_executor(executor, jobs, own=isinstance(what, Problem))
    if resume_from is not None:
        check_resume_from(resume_from, None if out is None else Path(out), fresh)
    _several("methods", methods)
    _several("seeds", seeds)
    changes = [*as_overrides(settings), *_listed(override)]
    setting, problem = resolve(what, changes, rounds, data, init)
    chosen = [setting.chosen(method) for method in methods]
    _check_applied(changes, methods)
    _distinct(
        "methods",
        [method.label for method in chosen],
        " Variants of a method need one study each.",
    )
    seeds = [as_seed(seed) for seed in seeds]
    _distinct("seeds", seeds)
    _several("baselines", baselines)
    check_baselines(baselines)
    rehearse(problem)  # bad input is found before anything is written
    given = resolve_reference(reference, setting, problem)
    if given is not None and not any(takes_reference(method) for method in chosen):
        raise InputError("None of the methods takes a reference. Leave out --reference.")
    with _folder(out) as folder, _watched(observer, quiet) as watch:
        _warn_of_scales(problem, given, None if observer is None else watch)
        lacking = [method for method in chosen if needs_reference(method)]
        runs = run_study(
            setting,
            problem,
            chosen if local_lrs is None else at_rates(chosen, local_lrs),
            seeds,
            folder,
            rates=next((method for method in lacking if method.label == FedHV.name), lacking[0] if lacking else None),
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
        runs = [_with_problem(run, what) for run in runs]
        best = None if local_lrs is None else best_rates(runs)
        shown = runs if best is None else best.runs
        how = "" if best is None else best.how
        study = Study(tuple(shown), folder, how) if out else Study(tuple(run.in_memory() for run in shown), None, how)
    if observer is None:
        for each in study:
            each.summary.warn()
    return study


def _with_problem(run: Run, what: str | Setting | Problem) -> Run:
    """The run with the user's own problem, which `load_model` needs; benchmarks are found by their names."""
    return replace(run, problem=what) if isinstance(what, Problem) else run


def tune(
    what: str | Setting | Problem,
    methods: Sequence[str | Method] = tuple(METHODS),
    trials: int = 9,
    *,
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
        what: As for `run`.
        methods: Names, "package.module:Class" or `Method`s.
        trials: The trials of each method. The first has the setting's values.
        seeds: The seeds of every trial; its score is the mean over them.
        by: "mean_accuracy", "worst_accuracy", "mean_loss", "hypervolume" or "main", the mean of the tasks' main metric.
            By default "main" if all tasks have the same main metric, else "mean_accuracy".
        validation: The share of its examples that every client holds out, unless the setting has one already.
        ranges: Other ranges to search by name, such as `{"local_lr": (0.1, 1.0), "stch.mu": (0.05, 0.5)}`.
        rounds: The rounds of the last rung, instead of the setting's.
        out: The folder of the trials and of `tuned.toml`; nothing is kept without one.
        jobs: As for `compare`.
        engine: "auto" or an engine's name.
        device: As for `run`.
        precision: As for `run`.
        override: As for `run`.
        data: As for `run`.
        observer: As for `run`.
        quiet: As for `run`.
        settings: As for `run`.
    """
    _several("methods", methods)
    _several("seeds", seeds)
    if trials < 1:
        raise InputError(f"`trials` should be at least 1. Found {trials}.")
    changes = [*as_overrides(settings), *_listed(override)]
    original = resolve_setting(what, changes)  # with its own rounds: those of the trials are no part of the result
    share = original.federation.validation or validation
    held = [] if isinstance(what, Problem) and what.validation is not None else [f"federation.validation={share}"]
    setting, problem = resolve(what, [*changes, *held, "evaluation.on=validation"], rounds, data)
    chosen = [setting.chosen(method) for method in methods]
    _check_applied(changes, methods)
    _distinct("methods", [method.label for method in chosen])
    seeds = [as_seed(seed) for seed in seeds]
    _distinct("seeds", seeds)
    checked = check_ranges(ranges or {}, chosen)
    judged = criterion(by, problem.tasks)
    rehearse(problem)
    with _folder(out) as folder, _watched(observer, quiet) as watch:
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
            by=judged,
            ranges=checked,
            original=original,
            observer=watch,
        )
        return found if out else replace(found, folder=None)


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
    reference: str | Path | Reference | Sequence[float] | None = None,
    override: Iterable[str] = (),
    data: str | None = None,
    observer: Observer | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Front:
    """The fronts of methods: each with several preferences, fixed weights or values of its knob, as one study.

    The same call with the same `out` resumes it. `out/front.json` and `out/front.csv` have every point, the exact
    hypervolumes and the median attainment surface (by moocore), `out/front.png` the figure.

    Args:
        what: As for `run`.
        methods: Names or `Method`s; "NAME@KEY" varies the hyper-parameter KEY. By default preferences vary where a
            method takes them, as the weights of "fixed", and else the knob.
        points: The points of each front.
        beside: Methods that are shown as one point beside the fronts.
        seeds: Every point has one run per seed.
        ranges: The range of a hyper-parameter by name, such as `{"factor": (1.05, 4.0)}`.
        rounds: As for `run`.
        out: The folder; without one nothing is kept but the result.
        jobs: As for `compare`.
        engine: "auto" or an engine's name.
        device: As for `run`.
        precision: As for `run`.
        reference: As for `run`.
        override: As for `run`.
        data: As for `run`.
        observer: As for `run`.
        quiet: As for `run`.
        settings: As for `run`.
    """
    moocore()  # found missing before hours of runs
    _several("methods", methods)
    seeds = [as_seed(seed) for seed in seeds]
    check_points(points, seeds)
    changes = [*as_overrides(settings), *_listed(override)]
    setting, problem = resolve(what, changes, rounds, data)
    m = len(problem.tasks)
    found = []
    for each in methods:
        name, _, over = each.partition("@") if isinstance(each, str) else (each, "", "")
        found.append(front_of(setting.chosen(name), over or None, points, m, ranges or {}))
    found += [one_point(setting.chosen(each)) for each in beside]
    _check_applied(changes, [*methods, *beside])
    _distinct("methods", [each.label for each in found])
    given = resolve_reference(reference, setting, problem)
    rehearse(problem)
    with _folder(out) as folder, _watched(observer, quiet) as watch:
        runs = run_study(
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
        tasks = [task.name for task in problem.tasks]
        owners = [(each, {variant.place(folder, s) for variant in each.variants for s in seeds}) for each in found]
        sorted_runs = [(each, [run for run in runs if run.folder in places]) for each, places in owners]
        result = make_front(setting.name, tasks, seeds, setting.evaluation.reference, sorted_runs, folder)
        if out:
            result.write(folder, figures=_has_matplotlib())
        return result if out else replace(result, folder=None)


def _has_matplotlib() -> bool:
    from importlib.util import find_spec

    return find_spec("matplotlib") is not None


@contextmanager
def _watched(observer: Observer | None, quiet: bool, choice: Choice | None = None) -> Iterator[Observer]:
    """The user's observer, or a progress bar, with a message about the engine first if it was chosen automatically."""
    watch = observer or shown(quiet)
    try:
        yield Announcing(watch, str(choice) if choice is not None and choice.announce else "")
    finally:
        if observer is None:
            watch.stop()


@contextmanager
def _folder(out: str | Path | None) -> Iterator[Path]:
    """The user's folder, or a temporary one."""
    if out:
        yield Path(out)
    else:
        with tempfile.TemporaryDirectory(prefix="fedhv-") as temporary:
            yield Path(temporary) / "study"


def _warn_of_scales(problem: Problem, given: Reference | None, watch: Observer | None) -> None:
    """One line if losses, or the losses of a given reference, differ several-fold; a warning if nobody observes."""
    names = [task.name for task in problem.tasks]
    said = uneven(problem) or ("" if given is None else differ("References", names, list(given.values)))
    if said and watch is not None:
        watch.message(said)
    elif said:
        warnings.warn(said, stacklevel=3)


def _listed(override: Iterable[str]) -> Iterable[str]:
    if isinstance(override, str) or not isinstance(override, Iterable) or isinstance(override, dict):
        raise InputError(f"`override` should be a list of 'section.key=value'. Found {override!r}.")
    return override


def _check_applied(changes: Iterable[str], methods: Iterable[str | Method]) -> None:
    """Raise an error for changes of hyper-parameters that a method given as an object would ignore."""
    for change in changes:
        path = change.partition("=")[0].strip()
        for method in methods:
            if isinstance(method, Method) and path.startswith(f"methods.{method.label}."):
                key = path.rpartition(".")[2]
                raise InputError(
                    f"`{path}` would be ignored: the method is given as an object. Write "
                    f"{type(method).__name__}({key}=…), or name the method '{method.label}'."
                )


def _several(name: str, values: object) -> None:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"`{name}` should be a list. Found {values!r}.")


def _distinct(name: str, values: Sequence[Any], remedy: str = "") -> None:
    if not values or len(set(values)) < len(values):
        raise InputError(f"`{name}` should name at least one, and none twice. Found {list(values)}.{remedy}")
