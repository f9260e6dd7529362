"""A reproduction beside the paper: whether the difference of two means is within what their seeds explain."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedhv.report.cells import MINUS, signed_text
from fedhv.report.groups import method_title
from fedhv.runs.defaults import SEEDS

TABLES = "tables"
"""The folder that `fedhv reproduce` writes beside its runs."""
FILES = ("main", "loss-hv", "per-task", "last10", "ablations")
TITLES = {
    "mean_accuracy": ("MeanAcc %", 2),
    "worst_accuracy": ("WorstAcc %", 2),
    "mean_loss": ("MeanLoss", 3),
    "hypervolume": ("HV", 2),
    "accuracy": ("Accuracy %", 2),
    "loss": ("Loss", 3),
}
PAPER_SEEDS = len(SEEDS)
"""The paper's means are over as many seeds as its settings name."""
MEASURED = ("ours_mean", "ours_std", "ours_runs", "paper_mean", "paper_std")


def read_reproduction(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Every number that both have, and notes on files that cannot be used."""
    entries: list[dict[str, Any]] = []
    notes = []
    for name in FILES:
        path = folder / f"{name}.csv"
        if not path.is_file() or path.is_symlink():
            continue
        try:
            entries += _entries(name, path)
        except (OSError, UnicodeDecodeError, csv.Error, ValueError):
            notes.append(f"{TABLES}/{path.name} is left out: it is not a comparison with the paper")
    return entries, notes


def welch(ours: tuple[float, float, int], paper: tuple[float, float, int]) -> tuple[float, float, float]:
    """Welch's 95 % interval of the difference of two means, each with its deviation and number: low, middle, high."""
    from scipy.special import stdtrit  # only for those who compare

    (mean, spread, n), (other, width, k) = ours, paper
    first, second = spread**2 / n, width**2 / k
    if first + second == 0:
        return mean - other, mean - other, mean - other
    freedom = (first + second) ** 2 / (first**2 / (n - 1) + second**2 / (k - 1))
    reach = float(stdtrit(freedom, 0.975)) * math.sqrt(first + second)
    return mean - other - reach, mean - other, mean - other + reach


def _entries(experiment: str, path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        heads = list(rows.fieldnames or ())
        if "metric" not in heads or not {*MEASURED} <= {*heads}:
            return []
        names = heads[: heads.index("metric")]
        return [_entry(experiment, row, names) for row in rows if row["ours_mean"] and row["paper_mean"]]


def _entry(experiment: str, row: Mapping[str, str], names: list[str]) -> dict[str, Any]:
    metric, digits = TITLES.get(row["metric"], (row["metric"], 2))
    contest = ", ".join(row[name] for name in names[:-1])
    competitor = method_title(row[names[-1]])
    ours, paper = float(row["ours_mean"]), float(row["paper_mean"])
    runs = int(row["ours_runs"] or 0)
    interval = None
    if row["ours_std"] and row["paper_std"] and runs > 1:
        interval = welch((ours, float(row["ours_std"]), runs), (paper, float(row["paper_std"]), PAPER_SEEDS))
    return {
        "experiment": experiment,
        "contest": contest,
        "competitor": competitor,
        "metric": metric,
        "name": f"{contest}, {competitor}, {metric}",
        "ours": _shown(row["ours_mean"], row["ours_std"], digits),
        "paper": _shown(row["paper_mean"], row["paper_std"], digits),
        "difference": signed_text(ours - paper, digits),
        "interval": None if interval is None else [float(f"{value:.5g}") for value in interval],
        "agreement": _agreement(interval),
    }


def _agreement(interval: tuple[float, float, float] | None) -> str:
    if interval is None or not all(map(math.isfinite, interval)):
        return "unknown"
    low, _, high = interval
    return "above" if low > 0 else "below" if high < 0 else "agree"


def _shown(mean: str, deviation: str, digits: int) -> str:
    spread = f" ± {float(deviation):.{digits}f}" if deviation else ""
    return f"{float(mean):.{digits}f}{spread}".replace("-", MINUS)
