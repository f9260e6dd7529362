"""`fedhv report`: tables, figures and the page of a study, in one folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedhv.report import render
from fedhv.report.cells import Table
from fedhv.report.comparison import compared, mixed_sentence, ranking_rule
from fedhv.report.escape import markdown_text
from fedhv.report.groups import StudyData
from fedhv.report.page import GENERATOR, page
from fedhv.report.rates import setting_sentence
from fedhv.report.study import read_study
from fedhv.report.tables import tables
from fedhv.support.errors import InputError
from fedhv.support.files import make_folder, write_atomic

PAGE = "index.html"
FORMATS = {"md": render.markdown, "csv": render.comma_separated, "tex": render.latex}
OURS = {"tables": tuple(FORMATS), "figures": ("png", "pdf")}


@dataclass(frozen=True)
class Report:
    """The files of a report, and notes on missing data.

    Attributes:
        folder: The report's folder.
        page: The HTML page in the folder.
        tables: The tables, ready for printing.
        files: All written files.
        notes: Runs and seeds that the study lacks, and figures that could not be drawn.
        remarks: How to read the tables: ranks, scores that cannot be compared, learning rates that differ.
    """

    folder: Path
    page: Path
    tables: tuple[Table, ...]
    files: tuple[Path, ...]
    notes: tuple[str, ...]
    remarks: tuple[str, ...] = ()


def write_report(
    folders: Sequence[str | Path],
    out: str | Path | None = None,
    *,
    figures: bool = True,
    jobs: int = 1,
    data: str | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Report:
    """Tables as Markdown, CSV and LaTeX, figures as PNG and PDF, and the page, from run folders.

    Args:
        folders: Run folders, study folders, or folders of studies. Runs need not be finished.
        out: The report's folder; by default `report` inside the given folder, if there is only one.
        figures: Whether figures are drawn; they need matplotlib.
        jobs: The number of processes that draw figures.
        data: The folder of the datasets, for figures of the benchmarks themselves.
        progress: Called with a line after every part. The page is first: it can be opened while figures are drawn.
    """
    places = [Path(folder) for folder in folders]
    if out is None and len(places) != 1:
        raise InputError("A report on several folders needs its own folder. Set it with --out.")
    study = read_study(places)
    if not study.runs:
        reasons = f" {study.notes[0]}." if study.notes and study.notes[0] != "no runs yet" else ""
        raise InputError(
            f"{', '.join(map(str, places))}: expected runs (folders with a config.toml). Found none.{reasons}"
        )
    if figures:
        from fedhv.report.figures import check_matplotlib

        check_matplotlib()
    target = _clean(Path(out) if out is not None else places[0] / "report")
    progress(f"{len(study.runs)} {'run' if len(study.runs) == 1 else 'runs'} read")
    write_atomic(target / PAGE, page(study))
    progress(f"The page is written: {target / PAGE}")
    made = tables(study)
    written = _tables(study, made, target)
    progress(f"{len(made)} tables are written")
    drawn, notes = _figures(study, target, jobs, data, progress) if figures else ([], [])
    if drawn:  # again, with links to them
        write_atomic(target / PAGE, page(study, figures=[path.stem for path in drawn if path.suffix == ".png"]))
    files = [*written, *drawn, target / PAGE]
    remarks = tuple(filter(None, _remarks(study)))
    return Report(target, target / PAGE, tuple(made), tuple(files), (*study.notes, *notes), remarks)


def _remarks(study: StudyData) -> Iterator[str]:
    """What the captions of all tables have in common."""
    groups = compared(study)
    yield ranking_rule(groups) if len(groups) > 1 else ""
    yield mixed_sentence(study)
    for setting in study.settings:
        yield setting_sentence(setting, named=len(study.settings) > 1)


def _figures(
    study: StudyData, target: Path, jobs: int, data: str | None, progress: Callable[[str], None]
) -> tuple[list[Path], list[str]]:
    from fedhv.report.figures import write_figures

    return write_figures(study, make_folder(target / "figures"), jobs, data, progress)


def _tables(study: StudyData, made: Sequence[Table], target: Path) -> list[Path]:
    folder = make_folder(target / "tables")
    written = []
    for table in made:
        for ending, write in FORMATS.items():
            written.append(folder / f"{table.name}.{ending}")
            write_atomic(written[-1], write(table))
    lacks = [f"- {markdown_text(note)}" for note in study.notes]
    missing = ["## What is missing", "", *lacks, ""] if lacks else []
    text = "\n".join([f"# {markdown_text(study.title)}", "", *missing, *(render.markdown(table) for table in made)])
    written.append(target / "tables.md")
    write_atomic(written[-1], text)
    return written


def _clean(target: Path) -> Path:
    """Remove the tables and figures of an older report from the folder. Other files are not changed."""
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} should be a folder. Found a file.")
    if target.is_dir() and any(target.iterdir()) and not _is_report(target):
        raise InputError(f"{target} should be empty or hold a report. Found other files. Choose another --out.")
    make_folder(target)
    for name, endings in OURS.items():
        for ending in endings:
            for path in (target / name).glob(f"*.{ending}"):
                path.unlink()
    return target


def _is_report(target: Path) -> bool:
    try:
        with (target / PAGE).open(encoding="utf-8", errors="replace") as file:
            return GENERATOR in file.read(4096)
    except OSError:
        return False
