"""The command `bench`: a comparison of the engines on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from fedhv.cli.options import (
    DataOption,
    DeviceOption,
    Json,
    PrecisionOption,
    SetOption,
    SettingArgument,
    names,
    output_console,
    print_json,
)
from fedhv.runs.config import load_setting
from fedhv.support.terminal import print_line

if TYPE_CHECKING:
    from fedhv.runs.bench import Measurement


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(bench)


def bench(
    setting: SettingArgument,
    engines: Annotated[
        str | None, typer.Option(help="Only these, comma-separated [default: all that work on the device].")
    ] = None,
    method: Annotated[str, typer.Option(help="The method: fedhv, uniform, fsmgda, fedcmoo or your own.")] = "fedhv",
    rounds: Annotated[int, typer.Option(min=1, help="The measured rounds of every engine.")] = 5,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    random: Annotated[
        bool, typer.Option("--random", help="Random images of the benchmark's shape instead of its data.")
    ] = False,
    set_: SetOption = None,
    data: DataOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No notes.")] = False,
    as_json: Json = False,
) -> None:
    """Measure the engines on this machine for a setting. The engines take turns, one round each.

    The table has the median seconds of a round, the gradient steps of all clients per second, the fraction of a run's
    time for evaluation, and the memory of the engine. Without the datasets, random images are used.
    """
    from fedhv.engines.trial_run import check_model
    from fedhv.runs.bench import choose_engines, find_source, measure

    resolved = load_setting(setting, set_ or [])
    chosen = resolved.method(method)
    wanted = None if engines is None else names(engines)
    source, problem, note = find_source(resolved, data, random)
    check_model(problem)
    choices, auto = choose_engines(wanted, device, precision, problem, resolved.plan(chosen, seed=0))
    errors = Console(stderr=True)
    silent = quiet or as_json

    def show(text: str) -> None:
        if not silent:
            print_line(errors, text)

    for text in (note, *(str(choice) for choice in choices if choice.announce)):
        if text:
            show(text)
    with errors.status("Warming up …") if not silent and errors.is_terminal else nullcontext() as status:

        def tick(done: int) -> None:
            if status is not None:
                status.update(f"Round {done} of {rounds} on every engine …")

        measured = measure(source, problem, chosen, choices, rounds, tick)
    if as_json:
        result = {"setting": resolved.name, "method": chosen.label, "auto": auto, "random": source.random}
        print_json(result | {"engines": [each.as_dict() for each in measured]})
        return
    console = output_console(140)
    console.print(_table(measured))
    for each in measured:
        if each.error:
            print_line(console, f"{each.engine}: {each.error}")
    plan = resolved.plan(chosen, seed=0)
    what = f"{chosen.label} on {resolved.name}: {plan.participants} clients, K = {plan.local.steps}"
    print_line(console, f"{what}, batches of {plan.local.batch_size}.")
    print_line(console, f"The default is: {auto}")


def _table(measured: Sequence[Measurement]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    headings = (
        "engine",
        "device",
        "s/round",
        "fastest–slowest",
        "client-steps/s",
        "s/evaluation",
        "evaluation",
        "memory",
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading in headings[:2] else "right")
    for each in measured:
        if each.error:
            table.add_row(each.engine, "failed", *["–"] * 6)
            continue
        table.add_row(
            each.engine,
            f"{each.device} {each.precision}",
            f"{each.round:.4g}",
            f"{min(each.seconds):.4g}–{max(each.seconds):.4g}",
            _significant(each.steps_per_second),
            f"{each.evaluation:.4g}",
            f"{100 * each.evaluation_share:.0f} %",
            f"{each.memory / 1e6:,.0f} MB",
        )
    return table


def _significant(number: float) -> str:
    """Three significant digits, whole numbers from a hundred on: "0.0412", "3.5", "12,345"."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
