"""STAR: reading and mathematics of pupils from kindergarten to third grade, about half of the scores missing.

The data are from Tennessee's class-size experiment. The clients are its schools. Some pupils change schools; a pupil
belongs to the first school that is known. The tasks are the eight test scores, in deviations from their mean.

Inputs are the records of pupil, class and teacher in each of the four years, with indicators of missing entries.
Scores, values derived from scores, the school and its district are not inputs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fedhv.benchmarks.models import MultiTask
from fedhv.benchmarks.natural import Part, natural_problem
from fedhv.data.catalogue import GRADES, STAR, STAR_TESTS
from fedhv.data.table import Table, load_table, numbers
from fedhv.problem.metrics import Metric
from fedhv.problem.problem import Problem
from fedhv.problem.tasks import regression
from fedhv.support.errors import InputError

SCALES = {
    "readk": (437.0, 32.0), "read1": (521.0, 55.0), "read2": (584.0, 46.0), "read3": (615.0, 39.0),
    "mathk": (485.0, 48.0), "math1": (531.0, 43.0), "math2": (581.0, 45.0), "math3": (618.0, 40.0),
}  # fmt: skip
"""Mean and standard deviation of every test, rounded. They are constants, so no client has to share its own."""

PUPIL = {
    "gender": ("female", "male"),
    "ethnicity": ("cauc", "afam", "asian", "hispanic", "amindian", "other"),
}
YEAR = {
    "star": ("regular", "small", "regular+aide"),
    "lunch": ("free", "non-free"),
    "school": ("inner-city", "suburban", "rural", "urban"),
    "degree": ("bachelor", "master", "specialist", "phd", "master+"),
    "ladder": ("level1", "level2", "level3", "apprentice", "probation", "pending", "notladder"),
    "tethnicity": ("cauc", "afam", "asian"),
}
"""Columns with categories; those in `YEAR` exist for every grade."""
INPUTS = sum(map(len, PUPIL.values())) + 2 + len(GRADES) * (sum(map(len, YEAR.values())) + 2)


class ScoreNet(MultiTask):
    """Two hidden layers over a pupil's record, one output per test: 12,040 parameters."""

    def __init__(self, width: int = 64) -> None:
        super().__init__(
            nn.Sequential(nn.Linear(INPUTS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
            (nn.Linear(width, 1) for _ in STAR_TESTS),
        )


def load(data: Path, evaluate_on: Part = "test") -> Problem:
    """STAR with a task for every test, divided by school."""
    table = load_table(data, STAR)
    scores = np.array([numbers(table, name) for name in STAR_TESTS], dtype=np.float32)
    centre, scale = (np.array([SCALES[name][i] for name in STAR_TESTS], np.float32)[:, None] for i in (0, 1))
    schools = first_school(np.array([numbers(table, f"schoolid{grade}") for grade in GRADES]))
    tested = ~np.isnan(scores).all(axis=0) & ~np.isnan(schools)
    clients = [np.flatnonzero(tested & (schools == school)) for school in np.unique(schools[tested])]
    return natural_problem(
        "STAR",
        ScoreNet,
        [regression(name, tolerance=0.5, metrics=[_rmse(name), "r2"]) for name in STAR_TESTS],
        encode(table),
        list((scores - centre) / scale),
        clients,
        evaluate_on,
    )


def load_validation(data: Path) -> Problem:
    """The same, evaluated on the validation examples, for the choice of learning rates."""
    return load(data, "validation")


def first_school(schools: np.ndarray) -> np.ndarray:
    """The first known school of every pupil, or NaN. `schools` has one row per grade."""
    first: np.ndarray = schools[0]
    for later in schools[1:]:
        first = np.where(np.isnan(first), later, first)
    return first


def encode(table: Table) -> np.ndarray:
    """Categories as indicators, all 0 if missing; numbers with an indicator of whether they are known."""
    parts = [_indicators(table, name, levels) for name, levels in PUPIL.items()]
    parts.append(_number(_birth(table["birth"]), centre=1980.0, scale=0.5))
    for grade in GRADES:
        parts += [_indicators(table, f"{name}{grade}", levels) for name, levels in YEAR.items()]
        parts.append(_number(np.array(numbers(table, f"experience{grade}")), centre=12.0, scale=8.0))
    return np.concatenate(parts, axis=1)


def _indicators(table: Table, name: str, levels: Sequence[str]) -> np.ndarray:
    texts = table[name]
    strange = next((text for text in texts if text not in (*levels, "", "NA")), None)
    if strange is not None:
        raise InputError(f"STAR: column '{name}' should hold {', '.join(levels)} or nothing. Found '{strange[:40]}'.")
    return np.array([[text == level for level in levels] for text in texts], dtype=np.float32)


def _number(values: np.ndarray, centre: float, scale: float) -> np.ndarray:
    known = ~np.isnan(values)
    return np.stack([np.where(known, (values - centre) / scale, 0.0), known], axis=1).astype(np.float32)


def _birth(texts: Sequence[str]) -> np.ndarray:
    """Quarters as years: "1979 Q3" is 1979.5."""
    return np.array([float("nan") if text in ("", "NA") else _quarter(text) for text in texts])


def _quarter(text: str) -> float:
    found = re.fullmatch(r"([0-9]{4}) Q([1-4])", text)
    if found is None:
        raise InputError(f"STAR: column 'birth' should hold quarters such as '1979 Q3'. Found '{text[:40]}'.")
    return int(found[1]) + (int(found[2]) - 1) / 4


def _rmse(test: str) -> Metric:
    return Metric("rmse", partial(points, SCALES[test][1]), "lower")


def points(scale: float, outputs: Tensor, targets: Tensor) -> float:
    """The root mean squared error in points of the test."""
    return scale * float(torch.sqrt((outputs.reshape(-1).double() - targets.double()).square().mean()))
