"""The command `reproduce`: the paper's tables, compared with ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedhv.cli.options import (
    ALL_SEEDS,
    DataOption,
    DeviceOption,
    EngineOption,
    ExecutorOption,
    JobsOption,
    Json,
    PrecisionOption,
    QuietOption,
    SeedsOption,
    names,
    numbers,
    output_console,
    print_json,
    resumable,
)
from fedhv.paper.experiments import ALL, EXPERIMENTS, Selection
from fedhv.paper.plan import METHODS, REFERENCES, SETTINGS
from fedhv.runs.defaults import EXECUTORS
from fedhv.support.errors import FedHVError
from fedhv.support.terminal import print_line

if TYPE_CHECKING:
    from fedhv.paper.estimate import Forecast
    from fedhv.paper.reproducing import Reproduction

MOST_NOTES = 16


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(reproduce)


def reproduce(
    what: Annotated[str, typer.Argument(metavar="WHAT", help=f"{', '.join(EXPERIMENTS)} or {ALL}.")],
    settings: Annotated[
        str | None, typer.Option(help=f"Only these, comma-separated [default: {','.join(SETTINGS)}].")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help=f"Only these, comma-separated [default: {','.join(METHODS)}].")
    ] = None,
    seeds: SeedsOption = ALL_SEEDS,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds instead of the settings'.")] = None,
    out: Annotated[Path, typer.Option(help="The folder of all runs and tables.")] = Path("runs/reproduce"),
    data: DataOption = None,
    jobs: JobsOption = None,
    executor: ExecutorOption = EXECUTORS[0],
    engine: EngineOption = "auto",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    reference: Annotated[
        str, typer.Option(help="FedHV's reference: calibrated as in the paper, the paper's values, or ours.")
    ] = REFERENCES[0],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs and their estimated times.")] = False,
    run: Annotated[
        bool, typer.Option("--run/--no-run", help="Compute missing runs, or compare the finished ones alone.")
    ] = True,
    quiet: QuietOption = False,
    as_json: Json = False,
) -> None:
    """Reproduce the paper's tables: run missing runs, and compare with the printed numbers.

    WHAT is main, loss-hv, per-task, ablations, last10, references, efficiency or all.

    Finished runs are not repeated, and interrupted runs are resumed: repeat the command to continue. Tables are
    written to OUT/tables as Markdown and CSV, those of a part of the study to OUT/tables/narrowed. References are
    calibrated once per family of settings and shared.
    """
    from fedhv.paper.reproducing import planned_runs
    from fedhv.paper.reproducing import reproduce as reproduce_experiment
    from fedhv.paper.running import Options

    options = Options(out, data, jobs, engine, device, precision, reference, executor)
    selection = Selection(
        _distinct(settings), _distinct(methods), tuple(dict.fromkeys(numbers("--seeds", seeds))), rounds
    )
    console = output_console()
    if dry_run:
        listed = planned_runs(what, options, selection)
        if as_json:
            print_json(_forecast_tables(listed))
        elif not quiet:
            _print_forecasts(console, listed)
        return
    with resumable(quiet or as_json) as watch:
        made = reproduce_experiment(what, options, selection, run=run, observer=watch)
    if as_json:
        result = {"experiments": [output.as_dict() for output in made.outputs], "files": list(map(str, made.files))}
        result |= {"failures": list(made.failures)}
        print_json(result)
    elif not quiet:
        _print(console, made)
    if made.failures:
        raise FedHVError(" ".join(made.failures))


def _print(console: Console, made: Reproduction) -> None:
    from fedhv.report.render import terminal

    for output in made.outputs:
        for sheet in output.sheets:
            if sheet.table is not None and sheet.table.rows:
                console.print(terminal(sheet.table))
                print_line(console, f"{sheet.table.caption}\n")
        if output.notes:
            print_line(console, f"What is missing from {output.name}:")
            for note in output.notes[:MOST_NOTES]:
                print_line(console, f"  - {note}")
            if len(output.notes) > MOST_NOTES:
                print_line(console, f"  - … and {len(output.notes) - MOST_NOTES} more, in {output.name}.md")
    print_line(console, f"The tables are in {made.files[0].parent}" if made.files else "There is nothing to write.")


def _print_forecasts(console: Console, listed: Sequence[Forecast]) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for heading, right in (("run", False), ("state", False), ("rounds", True), ("time left", True)):
        table.add_column(heading, justify="right" if right else "left")
    for each in listed:
        state = f"after round {each.done}" if each.state == "interrupted" and each.done else each.state
        left = "blocks" if each.blocks else "" if each.state == "finished" else _duration(each.seconds)
        table.add_row(Text(each.name), state, str(each.rounds), left)
    console.print(table)
    for each in listed:
        if each.note:
            print_line(console, f"{each.name}: {each.note}.")
    print_line(console, _in_all(listed))


def _in_all(listed: Sequence[Forecast]) -> str:
    """The last line: the number of runs to do, and their estimated time."""
    todo, blocking = [each for each in listed if each.to_do], [each for each in listed if each.blocks]
    if not todo and not blocking:
        return f"All {len(listed)} runs are finished."
    known = [each.seconds for each in todo if each.seconds is not None]
    time = f"about {_duration(sum(known))} in all, which may be off by a factor of two" if known else "unknown"
    also = f", and {len(todo) - len(known)} unknown" if 0 < len(known) < len(todo) else ""
    text = f"{len(todo)} of {len(listed)} to run; time: {time}{also}." if todo else ""
    if blocking:
        text += f" {len(blocking)} cannot be resumed, and nothing will run. Choose another --out."
    return text.strip()


def _forecast_tables(listed: Sequence[Forecast]) -> dict[str, object]:
    todo = [each for each in listed if each.to_do]
    return {
        "runs": [asdict(each) | {"blocks": each.blocks} for each in listed],
        "to_do": len(todo),
        "blocked": sum(each.blocks for each in listed),
        "seconds": sum(each.seconds or 0.0 for each in todo),
        "unknown": sum(each.seconds is None for each in todo),
    }


def _duration(seconds: float | None) -> str:
    """For example "2 h 05 min"."""
    if seconds is None:
        return "unknown"
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 1 else "under 1 s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def _distinct(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(dict.fromkeys(names(text)))
