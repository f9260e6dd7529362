"""The commands `tune` and `front`: many variants of methods as one study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from fedhv.cli.options import (
    ALL_METHODS,
    ALL_SEEDS,
    DataOption,
    DeviceOption,
    EngineOption,
    JobsOption,
    Json,
    MethodsOption,
    PrecisionOption,
    QuietOption,
    ReferenceOption,
    RoundsOption,
    SeedsOption,
    SetOption,
    SettingArgument,
    names,
    numbers,
    output_console,
    print_json,
    resumable,
)
from fedhv.runs.config import load_setting
from fedhv.support.errors import InputError
from fedhv.support.terminal import print_line
from fedhv.support.wording import counted

RangeOption = Annotated[
    list[str] | None, typer.Option("--range", help="A range to search: KEY=LOW:HIGH or METHOD.KEY=LOW:HIGH.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(tune)
    app.command()(front)


def tune(
    setting: SettingArgument,
    methods: MethodsOption = ALL_METHODS,
    trials: Annotated[int, typer.Option(min=1, help="The trials of each method.")] = 9,
    finalists: Annotated[int, typer.Option(min=1, help="The trials of each method that have all rounds.")] = 1,
    seeds: Annotated[str, typer.Option(help="Comma-separated; every trial has one run for each.")] = "0",
    by: Annotated[
        str | None, typer.Option(help="mean_accuracy, worst_accuracy, mean_loss, hypervolume or main (metric).")
    ] = None,
    validation: Annotated[float, typer.Option(help="The share of examples that every client holds out.")] = 0.2,
    range_: RangeOption = None,
    rounds: RoundsOption = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the trials [default: runs/SETTING-tune].")] = None,
    jobs: JobsOption = None,
    engine: EngineOption = "auto",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    set_: SetOption = None,
    data: DataOption = None,
    quiet: QuietOption = False,
    as_json: Json = False,
) -> None:
    """Find learning rates and the rules' knobs on held-out examples, with the same budget for every method.

    Repeat the command to continue. The values found are a setting: use OUT/tuned.toml in place of SETTING.
    """
    from fedhv.interface import tune as tune_methods

    resolved = load_setting(setting, set_ or [])
    folder = out or Path("runs") / f"{resolved.name}-tune"
    with resumable(quiet or as_json) as watch:
        found = tune_methods(
            resolved,
            names(methods),
            trials,
            finalists=finalists,
            seeds=numbers("--seeds", seeds),
            by=by,
            validation=validation,
            ranges=ranges(range_ or []),
            rounds=rounds,
            out=folder,
            jobs=jobs,
            engine=engine,
            device=device,
            precision=precision,
            data=data,
            observer=watch,
        )
    if as_json:
        print_json(found.as_dict())
    elif not quiet:
        table = Table(box=box.SIMPLE_HEAD, title=f"{found.setting.name}: the best of {trials} trials for each method")
        for heading in ("method", "values", found.by.name):
            table.add_column(heading, justify="right" if heading == found.by.name else "left")
        for label in found.methods:
            trial = found.best(label)
            values = ", ".join(f"{key} = {value:g}" for key, value in trial.values.items())
            table.add_row(Text(label), values, f"{found.by.sign * (trial.score or 0.0):#.4g}")
        console = output_console(140)
        console.print(table)
        print_line(console, found.how)
        print_line(console, f"Wrote {folder / 'tuned.toml'}; use it in place of {setting}")


def front(
    setting: SettingArgument,
    methods: Annotated[
        str, typer.Option("--methods", "--method", help="Comma-separated; NAME@KEY varies the hyper-parameter KEY.")
    ] = "fixed",
    points: Annotated[int, typer.Option(min=2, help="The points of each front.")] = 9,
    beside: Annotated[str, typer.Option(help="Comma-separated methods that are one point each.")] = "",
    seeds: SeedsOption = ALL_SEEDS,
    range_: RangeOption = None,
    rounds: RoundsOption = None,
    out: Annotated[Path | None, typer.Option(help="The front's folder [default: runs/SETTING-front].")] = None,
    jobs: JobsOption = None,
    engine: EngineOption = "auto",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    reference: ReferenceOption = None,
    set_: SetOption = None,
    data: DataOption = None,
    quiet: QuietOption = False,
    as_json: Json = False,
) -> None:
    """Show the fronts of methods over preferences, fixed weights or knobs: points, hypervolumes, a figure.

    Repeat the command to continue.
    """
    from fedhv.interface import front as find_front
    from fedhv.report.front_files import SPACE_NAMES, front_headings, front_rows

    resolved = load_setting(setting, set_ or [])
    folder = out or Path("runs") / f"{resolved.name}-front"
    with resumable(quiet or as_json) as watch:
        found = find_front(
            resolved,
            names(methods),
            points,
            beside=names(beside),
            seeds=numbers("--seeds", seeds),
            ranges=ranges(range_ or []),
            rounds=rounds,
            out=folder,
            jobs=jobs,
            engine=engine,
            device=device,
            precision=precision,
            reference=reference,
            data=data,
            observer=watch,
        )
    if as_json:
        print_json(found.as_dict())
    elif not quiet:
        title = f"{found.setting}: fronts, {counted(len(found.seeds), 'seed')}"
        table = Table(box=box.SIMPLE_HEAD, title=title)
        for heading in front_headings(found):
            table.add_column(heading, justify="left" if heading in ("method", "over") else "right")
        for row in front_rows(found):
            table.add_row(*map(Text, row))
        table.caption = (
            "mean ± sample standard deviation over seeds; not dominated: by other points of the method\n"
            "HV: hypervolume of the points, larger is better"
        )
        console = output_console(140)
        console.print(table)
        space = found.spaces[0]
        for each in found.differences():
            gap = each[space]
            within = "" if gap["low"] is None else f", 95 % interval {gap['low']:+.4f} to {gap['high']:+.4f}"
            print_line(console, f"{' − '.join(each['methods'])}: HV of {SPACE_NAMES[space]} {gap['mean']:+.4f}{within}")
        print_line(console, f"Every run, front.json, front.csv and the figure are in {folder}")


def ranges(given: list[str]) -> dict[str, tuple[float, float]]:
    """`KEY=LOW:HIGH` as pairs of numbers."""
    found = {}
    for each in given:
        key, equals, ends = each.partition("=")
        try:
            low, high = (float(end) for end in ends.split(":"))
        except ValueError:
            equals = ""
        if not equals or not key:
            raise InputError(f"--range should look like KEY=LOW:HIGH. Found '{each}'.")
        found[key.strip()] = (low, high)
    return found
