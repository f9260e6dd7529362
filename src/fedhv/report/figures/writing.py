"""Draw all figures of a study and write them as PNG and PDF, in several processes."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhv.benchmarks import BENCHMARKS, load_benchmark
from fedhv.problem.problem import Problem
from fedhv.report.escape import file_name
from fedhv.report.figures import ablation, balance, benchmark, costs, learning, tradeoff
from fedhv.report.figures.drawing import drawing, write_figure
from fedhv.report.groups import SettingStudy, StudyData
from fedhv.report.palette import Style, styles
from fedhv.runs.config import GIVEN, setting_from_tables
from fedhv.support.errors import FedHVError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FigureTask = Callable[[], tuple[list[Path], list[str]]]
"""Draws some figures; returns the written files and notes on failures."""


def check_matplotlib() -> None:
    """Raise an error if matplotlib is missing, before anything is written."""
    with drawing():
        pass


def write_figures(
    study: StudyData,
    folder: Path,
    jobs: int = 1,
    data: str | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[list[Path], list[str]]:
    """Every figure of every setting; returns the files and a note on each figure that could not be drawn.

    Args:
        study: The study.
        folder: An existing folder for the files.
        jobs: The number of drawing processes. More than one needs an importable main module, like `multiprocessing`.
        data: The folder of the datasets, for figures of the benchmarks themselves.
        progress: Called with a line whenever the figures of a setting are drawn.
    """
    looks = styles(study)
    names = prefixes(study)
    tasks: list[FigureTask] = []
    results: list[tuple[list[Path], list[str]]] = []
    check_matplotlib()
    for setting in study.settings:
        if any(group.counted for group in setting.groups):
            tasks.append(partial(_draw_setting, setting, looks, folder, names[setting.name]))
        tasks.append(partial(_draw_benchmark, setting.runs[0].record.config, folder, names[setting.name], data))
    if jobs == 1 or len(tasks) < 3:
        pending: Iterator[tuple[list[Path], list[str]]] = (task() for task in tasks)
        _collect(pending, results, len(tasks), progress)
    else:
        with ProcessPoolExecutor(min(jobs, len(tasks)), multiprocessing.get_context("spawn")) as pool:
            futures = [pool.submit(task) for task in tasks]
            _collect((future.result() for future in futures), results, len(tasks), progress)
    notes = dict.fromkeys(note for _, found in results for note in found)
    return [path for paths, _ in results for path in paths], list(notes)


def _collect(
    pending: Iterator[tuple[list[Path], list[str]]],
    results: list[tuple[list[Path], list[str]]],
    parts: int,
    progress: Callable[[str], None],
) -> None:
    """Keep results as they come, and tell how many figures there are."""
    for number, result in enumerate(pending, start=1):
        results.append(result)
        figures = sum(path.suffix == ".pdf" for paths, _ in results for path in paths)
        progress(f"Figures: {figures} drawn, part {number} of {parts}")


def figures_of(setting: SettingStudy, looks: Mapping[str, Style]) -> Iterator[tuple[str, Figure]]:
    """(name, figure) of all figures that a setting has data for."""
    yield "curves", learning.aggregates(setting, looks)
    yield from learning.per_task(setting, looks)
    if len(setting.tasks) > 1:
        yield "plane", tradeoff.plane(setting, looks)
    if len(setting.tasks) > 2:
        yield "radar", tradeoff.radar(setting, looks)
    if balance.weighting(setting):
        yield "weights", balance.weights(setting)
    if balance.with_slack(setting):
        yield "slacks", balance.slacks(setting)
    if setting.sweeps:
        yield "ablations", ablation.panels_of(setting)
    last_parts = Counter((sweep.method, _last_part(sweep.key)) for sweep in setting.sweeps)
    for sweep in setting.sweeps:
        # `training.rounds` and `calibration.rounds` may both be varied
        alone = last_parts[sweep.method, _last_part(sweep.key)] == 1
        key = _last_part(sweep.key) if alone else sweep.key
        yield f"ablation-{file_name(sweep.method)}-{file_name(key)}", ablation.curves(sweep)
    yield "costs", costs.costs(setting, looks)


def _last_part(key: str) -> str:
    return key.rpartition(".")[2]


def _draw_setting(
    setting: SettingStudy, looks: Mapping[str, Style], folder: Path, prefix: str
) -> tuple[list[Path], list[str]]:
    with drawing():
        drawn = [write_figure(folder / f"{prefix}{name}", figure) for name, figure in figures_of(setting, looks)]
    return [path for paths in drawn for path in paths], []


def _draw_benchmark(
    config: Mapping[str, Any], folder: Path, prefix: str, data: str | None
) -> tuple[list[Path], list[str]]:
    """Label distributions and example images, if the benchmark is a shipped one and its data is available."""
    given = config.get("setting")
    tables = {key: value for key, value in given.items() if key != "methods"} if isinstance(given, Mapping) else {}
    name = tables.get("benchmark")
    if name not in BENCHMARKS:
        # Loading a user's own benchmark would run the code that a file in the study names.
        title = tables.get("name") if name == GIVEN else name
        return [], [f"{title}: no figures of its labels and images, since it is not one of the shipped benchmarks"]
    written: list[Path] = []
    notes: list[str] = []
    try:
        setting = setting_from_tables(tables)
        loaded = load_benchmark(setting.benchmark, data)
        if isinstance(loaded, Problem):
            return [], [f"{name}: no figures of its labels and images, since its examples are not images"]
        with drawing():
            labels = benchmark.label_distribution(loaded, setting.federation.divide(loaded))
            written += write_figure(folder / f"{prefix}labels", labels)
            written += write_figure(folder / f"{prefix}examples", benchmark.examples(loaded))
    except FedHVError as error:
        notes.append(f"{name}: no figures of its labels and images: {error}")
    return written, notes


def prefixes(study: StudyData) -> dict[str, str]:
    """A file prefix for every setting; empty if there is only one."""
    if len(study.settings) == 1:
        return {study.settings[0].name: ""}
    names: dict[str, str] = {}
    for setting in study.settings:
        base, number = file_name(setting.name), 1
        while f"{base}{'' if number == 1 else f'-{number}'}-" in names.values():
            number += 1
        names[setting.name] = f"{base}{'' if number == 1 else f'-{number}'}-"
    return names
