"""The files of a front: `front.json`, `front.csv` and a figure; and its rows for a printed table."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedhv.report.front import SCORE, Front, Judged, seed_interval
from fedhv.support.files import write_atomic
from fedhv.support.jsonfile import write_object
from fedhv.support.statistics import Spread

JSON, CSV, FIGURE = "front.json", "front.csv", "front"
"""The files of a front in its folder."""
VERSION = 1
"""Of the format of `front.json`."""
SPACE_NAMES = {SCORE: "accuracies", "loss": "losses"}
MOST_TASKS = 4
"""More tasks have no columns of their own in a printed table."""


def front_record(front: Front) -> dict[str, Any]:
    """A front as `front.json` has it."""
    return {
        "version": VERSION,
        "setting": front.setting,
        "tasks": list(front.tasks),
        "metrics": [{"name": each.name, "better": "higher" if each.higher else "lower"} for each in front.mains],
        "rounds": front.rounds,
        "seeds": list(front.seeds),
        "reference": front.reference,
        "methods": [
            {
                "label": each.label,
                "method": each.method,
                "over": each.over,
                "points": [
                    {
                        "value": list(p.value) if isinstance(p.value, tuple) else p.value,
                        "seed": p.seed,
                        "run": p.run,
                        "scores": [None if math.isnan(score) else score for score in p.scores],
                        "losses": list(p.losses),
                        "training_losses": None if p.training_losses is None else list(p.training_losses),
                        "weights": list(p.weights),
                        "nondominated": p.nondominated,
                    }
                    for p in each.points
                ],
                "hypervolume": {
                    space: seed_interval(list(each.hypervolume[space].values()))
                    | {"by_seed": {str(seed): value for seed, value in each.hypervolume[space].items()}}
                    for space in front.spaces
                },
                "attainment": [list(point) for point in each.attainment],
            }
            for each in front.methods
        ],
        "differences": front.differences(),
        "dominated": front.dominated(),
        "diverged": [
            {
                "label": each.label,
                "over": each.over,
                "value": list(each.value) if isinstance(each.value, tuple) else each.value,
                "seeds": list(each.seeds),
            }
            for each in front.diverged
        ],
    }


def front_csv(front: Front) -> str:
    """Every point as a row."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    kinds = ("score", "loss", "training_loss", "weight")
    writer.writerow(
        ["method", "over", "value", "seed", "nondominated", *(f"{k}/{t}" for k in kinds for t in front.tasks)]
    )
    for each in front.methods:
        for p in each.points:
            value = " ".join(map(str, p.value)) if isinstance(p.value, tuple) else p.value
            training = p.training_losses or ("",) * len(front.tasks)
            row = [
                each.label,
                each.over,
                value,
                p.seed,
                p.nondominated,
                *p.scores,
                *p.losses,
                *training,
                *p.weights,
            ]
            writer.writerow(["" if cell is None else cell for cell in row])
    return text.getvalue()


def write_front(front: Front, folder: Path, figures: bool = True) -> list[Path]:
    """Write `front.json` and `front.csv`, and the figure if matplotlib is there; returns the files."""
    write_object(folder / JSON, front_record(front))
    write_atomic(folder / CSV, front_csv(front))
    return [folder / JSON, folder / CSV, *(draw_front(front, folder / FIGURE) if figures else [])]


def draw_front(front: Front, stem: Path) -> list[Path]:
    """Draw the fronts as `stem`.png and `stem`.pdf."""
    from fedhv.report.figures.drawing import drawing, write_figure
    from fedhv.report.figures.fronts import front_figure

    with drawing():
        return write_figure(stem, front_figure(front))


def front_headings(front: Front) -> list[str]:
    """The headings of `front_rows`."""
    tasks = [] if front.by_accuracy else [f"best {t} {m.unit}" for t, m in zip(front.tasks, front.mains, strict=True)]
    volumes = [f"HV of {SPACE_NAMES[space]} ↑" for space in front.spaces]
    return ["method", "over", "points", "not dominated", *tasks[:MOST_TASKS], *volumes]


def front_rows(front: Front) -> list[tuple[str, ...]]:
    """(method, over, points, not dominated, hypervolumes) for a printed table.

    Where tasks are judged by metrics it has the best mean of each task over the points instead of the hypervolume of
    accuracies.
    """
    rows = []
    for each in front.methods:
        kept = sum(point.nondominated for point in each.points)
        volumes = [Spread.of(list(each.hypervolume[space].values())).text(4) for space in front.spaces]
        count = len(each.points) // len(front.seeds)
        judged = () if front.by_accuracy else front.mains[:MOST_TASKS]
        best = [_best([float(scores[i]) for _, scores, _ in each.means()], main) for i, main in enumerate(judged)]
        rows.append(
            (each.label, each.over or "one point", str(count), f"{kept / len(front.seeds):.1f}", *best, *volumes)
        )
    return rows


def _best(scores: Sequence[float], main: Judged) -> str:
    """The best of some scores as text; those that are not defined do not count."""
    defined = [score for score in scores if not math.isnan(score)]
    return f"{(max if main.higher else min)(defined):.4g}" if defined else "–"
