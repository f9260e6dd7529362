"""Options and helpers that several commands share."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from fedhv.methods import METHODS
from fedhv.runs.defaults import SEEDS
from fedhv.support.errors import InputError, Interrupted

if TYPE_CHECKING:
    from fedhv.simulation.observer import Observer

SettingArgument = Annotated[str, typer.Argument(help="A setting's name (see `fedhv list`) or a TOML file.")]
MethodOption = Annotated[str, typer.Option(help="A name from `fedhv list methods`, or package.module:Class.")]
MethodsOption = Annotated[str, typer.Option(help="Comma-separated names.")]
ALL_METHODS = ",".join(METHODS)
SeedOption = Annotated[int, typer.Option(min=0, help="The seed of all random draws of the run.")]
SeedsOption = Annotated[str, typer.Option(help="Comma-separated whole numbers.")]
ALL_SEEDS = ",".join(map(str, SEEDS))
EngineOption = Annotated[str, typer.Option(help="Where clients are computed: auto or an engine's name.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda, or mps (Apple's GPU).")]
PrecisionOption = Annotated[str, typer.Option(help="auto, float32, tf32 or bf16 (the last two on a GPU).")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Change the setting: section.key=value. May be repeated.")
]
DataOption = Annotated[str | None, typer.Option(help="The folder of the datasets (or set FEDHV_DATA).")]
ReferenceOption = Annotated[
    str | None, typer.Option(help="FedHV's reference: a TOML file, or the name of one in the setting.")
]
InitOption = Annotated[
    str | None, typer.Option(help="The initial model: a run's folder, or a file with its parameters.")
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue the run in the folder, or start it.")]
ResumeFromOption = Annotated[
    int | None,
    typer.Option("--resume-from", min=1, help="Go back to this round, or the last kept before it, and continue there."),
]
FreshOption = Annotated[bool, typer.Option("--fresh", help="Delete the existing runs of this command and start again.")]
RoundsOption = Annotated[int | None, typer.Option(min=1, help="The number of rounds, instead of the setting's.")]
JobsOption = Annotated[int | None, typer.Option(min=1, help="The number of runs at a time [default: one per core].")]
ExecutorOption = Annotated[str, typer.Option(help="Where runs are computed: processes of this machine, or ray.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no table.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]


def output_console(width: int = 160) -> Console:
    """The console. Output to a file is not wrapped at the terminal's width but at `width`."""
    return Console() if sys.stdout.isatty() else Console(width=width)


def print_json(value: Any) -> None:
    """Print a result as JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def same_command(*more: str) -> str:
    """The current command line, with additional words if they are missing.

    `--fresh` and `--resume-from` are left out: a run that continues neither starts again nor goes back again.
    """
    typed: list[str] = []
    words = iter(sys.argv[1:])
    for word in words:
        if word == "--resume-from":
            next(words, None)
        elif word != "--fresh" and not word.startswith("--resume-from="):
            typed.append(word)
    return shlex.join(["fedhv", *typed, *(word for word in more if word not in typed)])


@contextmanager
def resumable(quiet: bool, wrap: Callable[[Observer], Observer] = lambda watch: watch) -> Iterator[Observer]:
    """An observer that shows progress. Ctrl-C ends with the command that continues."""
    from fedhv.report.progress import observer  # rich's bars are not needed by commands that show none

    watch = wrap(observer(Console(stderr=True), quiet))
    try:
        yield watch
    except Interrupted as stop:
        raise Interrupted(f"{stop} Continue with the same command: {same_command()}") from None
    finally:
        watch.stop()


def names(text: str) -> list[str]:
    """The words of a comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]


def numbers(option: str, text: str) -> tuple[int, ...]:
    """The whole numbers of a comma-separated list."""
    try:
        return tuple(int(number) for number in names(text))
    except ValueError:
        raise InputError(f"{option} should be whole numbers separated by commas. Found '{text}'.") from None


def decimals(option: str, text: str) -> tuple[float, ...]:
    """The numbers of a comma-separated list."""
    try:
        return tuple(float(number) for number in names(text))
    except ValueError:
        raise InputError(f"{option} should be numbers separated by commas. Found '{text}'.") from None
