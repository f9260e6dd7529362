"""The commands that train: run, compare, calibrate."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedhv.cli import report
from fedhv.cli.next_steps import next_steps
from fedhv.cli.options import (
    ALL_METHODS,
    ALL_SEEDS,
    DataOption,
    DeviceOption,
    EngineOption,
    ExecutorOption,
    FreshOption,
    InitOption,
    JobsOption,
    Json,
    MethodOption,
    MethodsOption,
    PrecisionOption,
    QuietOption,
    ReferenceOption,
    ResumeFromOption,
    ResumeOption,
    RoundsOption,
    SeedOption,
    SeedsOption,
    SetOption,
    SettingArgument,
    decimals,
    names,
    numbers,
    output_console,
    print_json,
    resumable,
    same_command,
)
from fedhv.runs.config import load_setting
from fedhv.runs.defaults import BASELINES, EXECUTORS
from fedhv.support import toml
from fedhv.support.errors import InputError, Interrupted
from fedhv.support.terminal import print_line

TensorBoardOption = Annotated[
    bool, typer.Option("--tensorboard", help="Also log for TensorBoard, in the folder's tensorboard/.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(run)
    app.command()(compare)
    app.command()(calibrate)


def run(
    setting: SettingArgument,
    method: MethodOption = "fedhv",
    seed: SeedOption = 0,
    rounds: RoundsOption = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder [default: runs/SETTING/METHOD-seedSEED].")] = None,
    engine: EngineOption = "auto",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    reference: ReferenceOption = None,
    set_: SetOption = None,
    init: InitOption = None,
    resume: ResumeOption = False,
    resume_from: ResumeFromOption = None,
    fresh: FreshOption = False,
    data: DataOption = None,
    tensorboard: TensorBoardOption = False,
    check: Annotated[
        bool,
        typer.Option("--check-determinism", help="Run a few rounds twice, compare them bit for bit, write nothing."),
    ] = False,
    quiet: QuietOption = False,
    as_json: Json = False,
) -> None:
    """Run one method on one setting.

    FedHV needs a reference; without one it is calibrated first and stored with the run.
    """
    from fedhv.interface import run as run_method
    from fedhv.report.progress import observer, warn_without_run
    from fedhv.report.summaries import summary_table
    from fedhv.runs.determinism import ROUNDS as DETERMINISM_ROUNDS
    from fedhv.runs.determinism import check_determinism

    resolved = load_setting(setting, set_ or [])
    if check:
        traces = check_determinism(
            resolved,
            method,
            seed=seed,
            rounds=rounds or DETERMINISM_ROUNDS,
            engine=engine,
            device=device,
            precision=precision,
            reference=reference,
            data=data,
            observer=observer(Console(stderr=True), quiet or as_json),
        )
        if as_json:
            print_json([{"how": trace.how, "model_sha256": trace.digest} for trace in traces])
        elif not quiet:
            output_console(140).print(
                f"Equal bit for bit in {len(traces)} runs: {'; '.join(trace.how for trace in traces)}."
            )
        return
    label = resolved.method(method).label
    folder = out or Path("runs") / resolved.name / f"{label}-seed{seed}"
    watch = report.logged(observer(Console(stderr=True), quiet or as_json), folder, tensorboard)
    watch = warn_without_run(watch, folder, resume and not fresh and resume_from is None)
    try:
        result = run_method(
            resolved,
            method,
            seed=seed,
            rounds=rounds,
            out=folder,
            engine=engine,
            device=device,
            precision=precision,
            reference=reference,
            init=init,
            resume=resume,
            resume_from=resume_from,
            fresh=fresh,
            data=data,
            observer=watch,
        )
    except Interrupted as stop:
        raise Interrupted(f"{stop} Continue with: {same_command('--resume')}") from None
    if as_json:
        print_json(result.summary.as_dict())
    elif not quiet:
        console = output_console(140)
        console.print(summary_table(result.summary))
        print_line(console, f"The run is in {folder}")
        for line in next_steps(folder, setting, label):
            print_line(console, line)


def compare(
    setting: SettingArgument,
    methods: MethodsOption = ALL_METHODS,
    seeds: SeedsOption = ALL_SEEDS,
    local_lr: Annotated[
        str | None, typer.Option(help="Several local learning rates for every method; the table has the best of each.")
    ] = None,
    rounds: RoundsOption = None,
    out: Annotated[Path | None, typer.Option(help="The study's folder [default: runs/SETTING].")] = None,
    jobs: JobsOption = None,
    executor: ExecutorOption = EXECUTORS[0],
    engine: EngineOption = "auto",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    reference: ReferenceOption = None,
    init: InitOption = None,
    resume_from: ResumeFromOption = None,
    fresh: FreshOption = False,
    baselines: Annotated[
        str, typer.Option(help=f"Baselines to run too, comma-separated: {', '.join(BASELINES)}.")
    ] = "",
    set_: SetOption = None,
    data: DataOption = None,
    tensorboard: TensorBoardOption = False,
    quiet: QuietOption = False,
    as_json: Json = False,
) -> None:
    """Compare methods over several seeds: one table with mean ± sample standard deviation.

    Finished runs in the folder are not run again, and interrupted runs are resumed: repeat the command to continue.
    """
    from fedhv.interface import compare as compare_methods
    from fedhv.report.summaries import comparison_table
    from fedhv.runs.study import StudyFailed

    resolved = load_setting(setting, set_ or [])
    folder = out or Path("runs") / resolved.name
    console = output_console(140)
    try:
        with resumable(quiet or as_json, lambda watch: report.logged(watch, folder, tensorboard)) as watch:
            runs = compare_methods(
                resolved,
                names(methods),
                numbers("--seeds", seeds),
                local_lrs=None if local_lr is None else decimals("--local-lr", local_lr),
                rounds=rounds,
                out=folder,
                jobs=jobs,
                executor=executor,
                engine=engine,
                device=device,
                precision=precision,
                reference=reference,
                init=init,
                resume_from=resume_from,
                fresh=fresh,
                baselines=names(baselines),
                data=data,
                observer=watch,
            )
    except StudyFailed as failed:
        if failed.runs and local_lr is None and not (quiet or as_json):  # runs of different rates are no seeds
            console.print(comparison_table([run.summary for run in failed.runs], console.width))
        raise
    if as_json:
        print_json(runs.as_dicts())
    elif not quiet:
        console.print(comparison_table([run.summary for run in runs], console.width, runs.how))
        print_line(console, f"Every run, its history and its model are in {folder}")


def calibrate(
    setting: SettingArgument,
    seeds: Annotated[str | None, typer.Option(help="Comma-separated; one calibration run for each.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="The rounds of every calibration run.")] = None,
    margin: Annotated[float | None, typer.Option(help="The margin that is added to the largest losses.")] = None,
    out: Annotated[Path | None, typer.Option(help="The reference file [default: SETTING-reference.toml].")] = None,
    engine: EngineOption = "auto",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    set_: SetOption = None,
    data: DataOption = None,
    quiet: QuietOption = False,
    as_json: Json = False,
) -> None:
    """Calibrate FedHV's reference with uniform-weight rounds and write it to a file.

    Defaults come from the setting's [calibration].
    """
    from fedhv.interface import calibrate as calibrate_reference
    from fedhv.report.progress import FolderAtStart, observer

    changes = [*(set_ or [])]
    changes += [] if seeds is None else [f"calibration.seeds={list(numbers('--seeds', seeds))}"]
    changes += [] if rounds is None else [f"calibration.rounds={rounds}"]
    changes += [] if margin is None else [f"calibration.margin={margin}"]
    resolved = load_setting(setting, changes)
    path = out or Path(f"{resolved.name}-reference.toml")
    if os.path.exists(path):
        raise InputError(f"{path} already exists. Choose another file with --out.")
    watch = FolderAtStart(observer(Console(stderr=True), quiet or as_json), path.parent)
    reference = calibrate_reference(
        resolved, engine=engine, device=device, precision=precision, data=data, observer=watch
    )
    reference.write(path)
    if as_json:
        print_json(toml.as_tables(reference))
    elif not quiet:
        print_line(output_console(140), f"Wrote {path}; use it with --reference {path}")
