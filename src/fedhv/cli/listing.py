"""The commands `list` and `show`: settings, methods and engines. They do not import PyTorch."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from fedhv.benchmarks import BENCHMARKS
from fedhv.cli.labels import label_lines
from fedhv.cli.options import (
    DataOption,
    Json,
    SetOption,
    SettingArgument,
    output_console,
    print_json,
)
from fedhv.engines import ENGINES
from fedhv.methods import CLIENT_SIDE, METHODS, RULES
from fedhv.runs.config import load_setting, setting_tables, shipped_settings
from fedhv.support import toml
from fedhv.support.errors import unknown


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("list")(list_)
    app.command()(show)


def list_(
    what: Annotated[str | None, typer.Argument(help='"methods": all methods, their needs and communication.')] = None,
    as_json: Json = False,
) -> None:
    """List settings, methods and engines."""
    console = output_console(140)
    if what is not None and what != "methods":
        raise unknown("list", what, ["methods"])
    if what == "methods":
        from fedhv.cli.methods import print_methods

        print_methods(console, as_json)
        return
    settings = {name: load_setting(name).description for name in shipped_settings()}
    if as_json:
        listing = {
            "settings": settings,
            "methods": list(METHODS),
            "rules": list(RULES),
            "local_training": list(CLIENT_SIDE),
            "benchmarks": list(BENCHMARKS),
            "engines": ["auto", *ENGINES],
        }
        print_json(listing)
        return
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("setting")
    table.add_column("description")
    for name, description in settings.items():
        table.add_row(name, description)
    console.print(table)
    console.print(f"Methods: {', '.join(METHODS)}, or your own as package.module:Class", highlight=False)
    console.print(f"Other rules: {', '.join(RULES)}; for needs and communication: fedhv list methods", highlight=False)
    console.print(f"Other local training: {', '.join(CLIENT_SIDE)}", highlight=False)
    console.print(f"Engines: auto, {', '.join(ENGINES)}", highlight=False)


def show(setting: SettingArgument, set_: SetOption = None, data: DataOption = None) -> None:
    """Print a setting, fully resolved, as TOML, and the fraction of available labels if some are missing."""
    chosen = load_setting(setting, set_ or [])
    sys.stdout.write(toml.write(setting_tables(chosen)))
    for line in label_lines(chosen, data):
        sys.stdout.write(f"# {line}\n")
