"""The command `doctor`: the state of the installation, for bug reports."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from fedhv.cli.options import DataOption, Json, print_json


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(doctor)


def doctor(
    data: DataOption = None,
    self_test: Annotated[bool, typer.Option(help="Compute two rounds on the CPU and on the best device.")] = True,
    as_json: Json = False,
) -> None:
    """Print versions, devices, optional packages and datasets, and run a short self-test; for bug reports.

    The output names no user, no machine and no folder. The exit code is 1 if something is broken.
    """
    from fedhv.runs.doctor import examine

    findings = []
    section = ""
    for finding in examine(data, self_test):
        findings.append(finding)
        if as_json:
            continue
        if finding.section != section:
            section = finding.section
            print(section, flush=True)
        mark = " " if finding.ok else "!"
        print(f"{mark} {finding.name}: {finding.value}", flush=True)
    broken = [finding for finding in findings if not finding.ok]
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        print(f"Problems: {len(broken)}, marked with !" if broken else "No problem was found.")
    raise typer.Exit(1 if broken else 0)
