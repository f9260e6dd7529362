"""The output of an experiment: tables, records for programs, and notes on missing runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedhv.report.cells import Table
from fedhv.report.escape import markdown_text
from fedhv.report.render import markdown
from fedhv.support.csvfile import as_csv
from fedhv.support.files import make_folder, write_atomic

Records = list[dict[str, Any]]


@dataclass(frozen=True)
class Sheet:
    """One table and its unrounded numbers; `table` is None if there are too many rows."""

    name: str
    records: Records
    table: Table | None = None


@dataclass(frozen=True)
class Output:
    """One experiment.

    Attributes:
        name: Its name in `fedhv reproduce`.
        title: Its title.
        sheets: Its tables.
        notes: Missing runs, and runs that cannot be used.
    """

    name: str
    title: str
    sheets: tuple[Sheet, ...]
    notes: tuple[str, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        tables = {sheet.name: sheet.records for sheet in self.sheets if sheet.table is not None}
        return {"experiment": self.name, "notes": list(self.notes), "tables": tables}


def write_outputs(outputs: Sequence[Output], folder: Path) -> list[Path]:
    """One Markdown page for each experiment, one CSV file for each of its tables."""
    make_folder(folder)
    written = []
    for output in outputs:
        written.append(folder / f"{output.name}.md")
        write_atomic(written[-1], page(output))
        for sheet in output.sheets:
            path = folder / f"{sheet.name}.csv"
            if sheet.records:
                written.append(path)
                write_atomic(path, as_csv(sheet.records))
            else:
                path.unlink(missing_ok=True)  # an older page would contradict the new tables
    return written


def page(output: Output) -> str:
    """An experiment as Markdown."""
    lines = [f"# {markdown_text(output.title)}", ""]
    if output.notes:
        lines += ["## What is missing", "", *(f"- {markdown_text(note)}" for note in output.notes), ""]
    lines += [markdown(sheet.table) for sheet in output.sheets if sheet.table is not None and sheet.table.rows]
    return "\n".join(lines)
