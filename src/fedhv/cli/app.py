"""The command `fedhv`: its subcommands are registered here.

Each command imports the modules that it needs: help, `list` and `show` do not import PyTorch.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated

import click
import typer

from fedhv._version import __version__
from fedhv.cli import bench, data, doctor, flower, listing, model, report, reproduce, search, theory, training

app = typer.Typer(
    name="fedhv",
    help="Federated multi-task learning with PyTorch.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _version(asked: bool) -> None:
    if asked:
        print(f"fedhv {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Federated multi-task learning with PyTorch: one shared model, several tasks, data that stays with the clients."""


# The help shows the commands in this order.
for each in (training, listing, model, search, bench, data, flower, report, reproduce, theory, doctor):
    each.register(app)


@cache
def commands() -> click.Command:
    """The commands as click has them. typer makes them from the signatures of all functions, which takes a while."""
    return typer.main.get_command(app)
