"""The commands `data where`, `data verify` and `data download`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from fedhv.cli.options import DataOption, Json, output_console, print_json
from fedhv.data import Finding, data_directory, data_location
from fedhv.data import download as download_dataset
from fedhv.data import verify as verify_datasets
from fedhv.data.catalogue import SOURCES
from fedhv.data.celeba import FOLDER as CELEBA
from fedhv.data.files import present
from fedhv.data.verify import presence
from fedhv.support.bars import counts, downloads
from fedhv.support.errors import Interrupted
from fedhv.support.terminal import print_line

STYLES = {"verified": "green", "readable": "green", "damaged": "bold red", "missing": "yellow"}


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    data = typer.Typer(help="Find, verify and download datasets.", no_args_is_help=True)
    for command in (where, verify, download):
        data.command()(command)
    app.add_typer(data, name="data")


def where(data: DataOption = None, as_json: Json = False) -> None:
    """Show the folder of the datasets, the origin of its name, and the datasets in it."""
    location = data_location(data)
    folders = {name: location.path / source.folder for name, source in SOURCES.items()}
    folders["celeba"] = location.path / CELEBA
    found = presence(location.path)
    if as_json:
        datasets = {name: {"folder": str(folder), "there": found[name] == "there"} for name, folder in folders.items()}
        place = {"path": str(location.path), "origin": location.origin, "exists": present(location.path)}
        print_json(place | {"datasets": datasets})
        return
    _line(f"{location.path} ({location.origin})")
    for name, folder in folders.items():
        _line(f"  {name}: {folder.relative_to(location.path)}{'' if found[name] == 'there' else f', {found[name]}'}")


def verify(data: DataOption = None, as_json: Json = False) -> None:
    """Verify every dataset in the data directory: the official SHA-256 if there is one, otherwise readability.

    The exit code is 1 if a dataset is damaged or incomplete, or if there is none. A missing dataset is not an error.
    """
    root = data_directory(data)
    with counts(quiet=as_json) as progress:
        findings = verify_datasets(root, progress.update)
    if as_json:
        rows = [asdict(finding) | {"path": str(finding.path), "ok": finding.ok} for finding in findings]
        print_json({"path": str(root), "findings": rows})
    else:
        table = Table(box=box.SIMPLE_HEAD, title=Text(str(root)), title_justify="left")
        for heading in ("dataset", "file", "state", "details"):
            table.add_column(heading, overflow="fold")
        for finding in findings:
            path = finding.path.relative_to(root) if finding.path.is_relative_to(root) else finding.path
            state = Text(finding.state, STYLES[finding.state])
            table.add_row(finding.dataset, Text(str(path)), state, Text(finding.detail))
        output_console().print(table)
    if not sound(findings):
        raise typer.Exit(1)


def sound(findings: Sequence[Finding]) -> bool:
    """Whether there is at least one dataset, and all datasets are complete."""
    states: dict[str, set[str]] = {}
    for finding in findings:
        states.setdefault(finding.dataset, set()).add(finding.state)
    there = [found for found in states.values() if found != {"missing"}]
    return bool(there) and not any(found & {"damaged", "missing"} for found in there)


def download(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"{', '.join(SOURCES)} or celeba.")],
    data: DataOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Download a dataset from its official source and verify its SHA-256. An interrupted download is resumed.

    NAME is mnist, fashion-mnist, cifar10, tox21, star or celeba. CelebA is not downloaded: the command shows its
    terms and the folder for its files.
    """
    try:
        with downloads(quiet) as progress:
            said = download_dataset(name, data_directory(data), progress.update)
    except KeyboardInterrupt:
        raise Interrupted("Stopped. The downloaded bytes are kept. Continue with the same command.") from None
    _line(said)


def _line(text: str) -> None:
    console = output_console()
    print_line(console, text)
