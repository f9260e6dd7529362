"""Common parts of the reliability experiments: paths, tables on disk, the style of figures."""

from __future__ import annotations

import argparse
import csv
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results" / "reliability"
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

COLOURS = {"sequential": "#4477aa", "parallel": "#ee6677", "stacked": "#228833"}


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows with the keys of the first as columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def figure(path: Path, draw: Any, size: tuple[float, float] = (6.4, 3.4)) -> None:
    """A figure as PNG and PDF."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    with plt.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        drawn, axes = plt.subplots(figsize=size, layout="constrained")
        draw(axes)
        drawn.savefig(path.with_suffix(".png"), dpi=160)
        drawn.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None})
        plt.close(drawn)


def machine() -> str:
    """One line about the machine of the measurements."""
    import torch

    return (
        f"Python {platform.python_version()}, torch {torch.__version__}, {platform.machine()}, {os.cpu_count()} cores"
    )


class Log:
    """Prints, and writes the output to a file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8")

    def __call__(self, text: str = "") -> None:
        print(text, flush=True)
        print(text, file=self._file, flush=True)


class Notes:
    """Prints, and keeps the output until the experiment ends: an interrupted experiment leaves no file."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def __call__(self, text: str = "") -> None:
        print(text, flush=True)
        self._lines.append(text)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in self._lines), encoding="utf-8")


def out_folder(description: str | None, arguments: Sequence[str] | None = None) -> Path:
    """The command line of an experiment whose only option is its output folder."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "--out", type=Path, default=RESULTS, help="folder of the tables and figures [default: results/reliability]"
    )
    out: Path = parser.parse_args(arguments).out
    if out.exists() and not out.is_dir():
        parser.error(f"--out should be a folder. Found the file {out}.")
    return out


def table(heading: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Aligned columns."""
    cells = [list(map(str, heading)), *[list(map(str, row)) for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heading))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
