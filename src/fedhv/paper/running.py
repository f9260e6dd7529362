"""Run the missing runs of a plan: references first, then study after study. Finished runs are not repeated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedhv.benchmarks import load_benchmark
from fedhv.engines import choose_engine
from fedhv.interface import compare
from fedhv.paper import references
from fedhv.paper.experiments import family
from fedhv.paper.found import Found, read_states
from fedhv.paper.plan import REFERENCES, PlannedRun, ReproductionPlan, StudyVariant
from fedhv.runs.config import load_setting
from fedhv.runs.defaults import EXECUTORS
from fedhv.runs.executors import check_executor
from fedhv.runs.reference import Reference, read_reference
from fedhv.runs.resolve import named_source
from fedhv.runs.study import StudyFailed
from fedhv.simulation.observer import Observer
from fedhv.support.errors import InputError, unknown
from fedhv.support.files import make_folder


@dataclass(frozen=True)
class Options:
    """How runs are computed.

    Attributes:
        out: The reproduction's folder.
        data: The folder of the datasets.
        jobs: Runs at a time.
        executor: As for `fedhv.compare`.
        engine: As for `fedhv.run`.
        device: As for `fedhv.run`.
        precision: As for `fedhv.run`.
        reference: "calibrated" by this command, "paper" for the paper's values, or "ours" for those of the settings.
    """

    out: Path
    data: str | None = None
    jobs: int | None = None
    engine: str = "auto"
    device: str = "auto"
    precision: str = "auto"
    reference: str = REFERENCES[0]
    executor: str = EXECUTORS[0]

    def __post_init__(self) -> None:
        if self.reference not in REFERENCES:
            raise unknown("reference", self.reference, REFERENCES)
        check_executor(self.executor, self.jobs, own=False)


def calibrations(plan: ReproductionPlan, found: Sequence[Found], options: Options) -> list[str]:
    """The families whose reference has to be calibrated, by the setting that it is calibrated under."""
    wanted = dict.fromkeys(plan.calibrations)
    if options.reference == "calibrated":
        wanted |= dict.fromkeys(
            family(each.run.variant.setting) for each in found if each.run.method == "fedhv" and not each.finished
        )
    return [under for under in wanted if references.existing(options.out, under) is None]


def run_missing(plan: ReproductionPlan, options: Options, observer: Observer | None = None) -> list[str]:
    """Compute unfinished runs. All checks are made before anything is written.

    A run that fails, for example because it diverges, does not stop the others. Returns the errors of failed runs.
    """
    observer = observer or Observer()
    choice = choose_engine(options.engine, options.device, options.precision)
    found = read_states(plan, options.out)
    _check(found, options)
    families = calibrations(plan, found, options)
    todo = {each.run for each in found if not each.finished}
    studies = {variant: runs for variant, runs in plan.studies().items() if todo & set(runs)}
    _check_data([*families, *(variant.setting for variant in studies)], options.data)
    if not families and not studies:
        return []
    make_folder(options.out)
    failures = []
    try:
        for under in families:
            references.calibrated(options.out, under, choice, options.data, observer)
            observer.stop()
        for number, (variant, runs) in enumerate(studies.items(), start=1):
            count = len(todo & set(runs))
            observer.message(f"{variant.name} (study {number} of {len(studies)}): {count} of {len(runs)} runs to do")
            try:
                _run_study(variant, runs, options, observer)
            except StudyFailed as failed:
                failures.append(f"{variant.name}: {failed}")
            observer.stop()
    finally:
        observer.stop()
    return failures


def _run_study(variant: StudyVariant, runs: Sequence[PlannedRun], options: Options, observer: Observer) -> None:
    """All runs of one study; `compare` reads those that are finished."""
    methods = list(dict.fromkeys(run.method for run in runs))
    compare(
        variant.setting,
        methods,
        list(dict.fromkeys(run.seed for run in runs)),
        rounds=runs[0].rounds,
        out=options.out / variant.name,
        jobs=options.jobs,
        executor=options.executor,
        engine=options.engine,
        device=options.device,
        precision=options.precision,
        reference=_reference(variant, options) if "fedhv" in methods else None,
        override=variant.overrides,
        data=options.data,
        observer=observer,
    )


def _reference(variant: StudyVariant, options: Options) -> Reference | str | None:
    """The reference of FedHV's runs. A study whose FedHV runs are finished already has one."""
    if options.reference != "calibrated":
        return options.reference
    return references.existing(options.out, family(variant.setting))


def _check(found: Sequence[Found], options: Options) -> None:
    """Refuse a folder that holds other runs, or runs with another kind of reference."""
    for each in found:
        if each.note:
            raise InputError(f"{each.folder} cannot be resumed: {each.note}. Choose another --out.")
        if each.run.method != "fedhv":
            continue
        if options.reference == "calibrated":
            references.check_shared_calibration(each.run.variant.setting)
        path = each.folder.parent / references.NAME
        reference = each.reference or (read_reference(path) if path.exists() else None)
        if reference is not None and reference.provenance.source != _source(
            each.run.variant.setting, options.reference
        ):
            raise InputError(
                f"{each.folder.parent} should hold FedHV runs with `--reference {options.reference}`. "
                "Found another reference. Choose another --out or --reference."
            )


def _source(setting: str, reference: str) -> str:
    """The provenance of a reference of this kind."""
    return "calibration" if reference == "calibrated" else named_source(setting, reference)


def _check_data(settings: Iterable[str], data: str | None) -> None:
    """Raise an error at once if a benchmark cannot be loaded, not after hours of other runs."""
    benchmarks = dict.fromkeys(load_setting(setting).benchmark for setting in settings)
    for benchmark in benchmarks:
        try:
            load_benchmark(benchmark, data)
        except InputError as error:
            others = f" Or leave {benchmark} out with --settings." if len(benchmarks) > 1 else ""
            raise InputError(f"{error}{others}") from None
