"""The commands `report` and `watch`, and TensorBoard for the others."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedhv.cli.options import Json, output_console, print_json
from fedhv.support.cores import usable_cores
from fedhv.support.errors import InputError
from fedhv.support.terminal import print_line

if TYPE_CHECKING:
    from fedhv.report.writing import Report
    from fedhv.simulation.observer import Observer

Folders = Annotated[list[Path], typer.Argument(metavar="DIR…", help="Run folders, or folders of runs.")]
MOST_ROWS = 24
"""Tables with more rows are not printed; they are in the files."""
MOST_NOTES = 12
LOOKS = 1.0
"""Seconds between two looks at a run."""


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(report)
    app.command()(watch)


def report(
    folders: Folders,
    out: Annotated[Path | None, typer.Option(help="The report's folder [default: DIR/report].")] = None,
    figures: Annotated[bool, typer.Option(help="Draw figures (PNG and PDF).")] = True,
    data: Annotated[
        str | None, typer.Option(help="The folder of the datasets, for figures of labels and images.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes that draw figures [default: one for every core].")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Make tables, figures and a page from runs, finished or not."""
    from fedhv.report.writing import write_report

    began = time.monotonic()
    errors = Console(stderr=True)

    def progress(text: str) -> None:
        if not quiet:
            print_line(errors, text)

    made = write_report(folders, out, figures=figures, jobs=jobs or usable_cores(), data=data, progress=progress)
    if not quiet:
        _print(made, time.monotonic() - began)


def watch(
    folders: Folders,
    port: Annotated[
        int, typer.Option(min=0, max=65535, show_default=False, help="The port on 127.0.0.1 [default: a free one].")
    ] = 0,
    nodes: Annotated[
        bool, typer.Option("--nodes", help="Show the clients of one run in this terminal: replies and response times.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the page of unfinished runs. It updates itself until Ctrl-C.

    With --nodes, show the clients of one run, such as the nodes of a federation, in the terminal until the run ends.
    With --json, print them once.
    """
    if nodes or as_json:
        _watch_nodes(folders, as_json)
        return
    from fedhv.report.watch import LiveStudy, PageServer

    console = Console()
    server = PageServer(LiveStudy(folders), port)
    print_line(console, f"The page is at {server.url} (Ctrl-C stops)")
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        console.print("Stopped.")
    finally:
        server.server_close()


def _watch_nodes(folders: list[Path], as_json: bool) -> None:
    """The clients of one run; in a terminal until it ends, else once."""
    from rich.live import Live

    from fedhv.report.nodes import Federation

    if len(folders) != 1:
        raise InputError(f"`--nodes` and `--json` need the folder of one run. Found {len(folders)} folders.")
    found, console = Federation.read(folders[0]), output_console()
    if as_json:
        print_json(found.as_dict())
        return
    if not console.is_terminal:
        console.print(found.table())
        return
    with Live(found.table(), console=console, auto_refresh=False) as live, suppress(KeyboardInterrupt):
        while found.state == "running":
            time.sleep(LOOKS)
            found = Federation.read(folders[0])
            live.update(found.table(), refresh=True)


def logged(observer: Observer, folder: Path, tensorboard: bool) -> Observer:
    """The observer of a run or a study, which also logs for TensorBoard if requested."""
    if not tensorboard:
        return observer
    from fedhv.report.tensorboard import TensorBoard

    return TensorBoard(folder, observer)


def _print(made: Report, seconds: float) -> None:
    from fedhv.report.render import terminal

    console = output_console()
    for table in made.tables:
        if len(table.rows) <= MOST_ROWS:
            console.print(terminal(table))
        else:
            print_line(console, f"{table.title}: {len(table.rows)} rows, see tables/{table.name}.md\n")

    for remark in made.remarks:
        console.print(remark, markup=False, highlight=False)
    if made.notes:
        print_line(console, "What is missing:")
        for note in made.notes[:MOST_NOTES]:
            print_line(console, f"  - {note}")
        if len(made.notes) > MOST_NOTES:
            print_line(console, f"  - … and {len(made.notes) - MOST_NOTES} more, on the page")
    figures = sum(path.suffix == ".pdf" for path in made.files)
    drawn = f", {figures} figures (PNG, PDF)" if figures else ""
    print_line(
        console, f"Wrote the page, {len(made.tables)} tables (Markdown, CSV, LaTeX){drawn} in {seconds:.1f} s. Look at:"
    )
    print_line(console, f"  the page    {made.page}")
    print_line(console, f"  the tables  {made.folder / 'tables.md'}")
    if figures:
        print_line(console, f"  the figures {made.folder / 'figures'}")
