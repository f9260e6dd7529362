"""The output of experiments and diagnoses: tables as CSV, figures as PNG and PDF."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhv.support.csvfile import as_csv
from fedhv.support.errors import InputError
from fedhv.support.files import make_folder, write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]


def folder_for(path: Path) -> Path:
    """The folder; created if it does not exist."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} should be a folder. Found a file. Choose another with --out.")
    return make_folder(path)


def write_table(path: Path, rows: Sequence[Row]) -> Path:
    """Rows as CSV, every number with all its digits; None is an empty cell."""
    write_atomic(path, as_csv(rows))
    return path


def write_figure(path: Path, make: Callable[[], Figure]) -> list[Path]:
    """Write a figure to `path` with the endings .png and .pdf; needs matplotlib."""
    from fedhv.report.figures import drawing

    with drawing.drawing():
        return drawing.write_figure(path, make())
