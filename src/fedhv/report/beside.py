"""Files beside runs that the page shows too: fronts, and the comparison of a reproduction with the paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedhv.protocol.evaluation import ACCURACY
from fedhv.report.agreement import TABLES, read_reproduction
from fedhv.report.groups import Beside
from fedhv.support.errors import InputError
from fedhv.support.jsonfile import read_object
from fedhv.support.numbers import is_number

FRONT = "front.json"


def read_beside(folders: Sequence[Path], runs: Mapping[Path, str] | None = None) -> Beside:
    """The files in the given folders and one level below, and in the studies of `runs`.

    These are folders of runs with the names of their settings in this report: a front belongs to that of its points.
    """
    settings, seen, fronts, paper, notes = dict(runs or {}), set[Path](), [], [], []
    studies = {run.parent.parent for run in settings}
    for folder in folders:
        inside = {study / FRONT for study in studies if study.is_relative_to(folder.resolve())}
        for path in sorted({folder / FRONT, *folder.glob(f"*/{FRONT}"), *inside}):
            if path.is_file() and not path.is_symlink() and path.resolve() not in seen:
                seen.add(path.resolve())
                try:
                    fronts.append(_front(read_object(path), path.resolve().parent, settings))
                except (InputError, AttributeError, KeyError, TypeError, ValueError):
                    notes.append(f"{path.resolve().relative_to(folder.resolve())} is left out: it is not a front")
        found, wrong = read_reproduction(folder / TABLES)
        paper += found
        notes += wrong
    return Beside(tuple(fronts), tuple(paper), tuple(notes))


def _front(found: Mapping[str, Any], folder: Path, settings: Mapping[Path, str]) -> dict[str, Any]:
    tasks = [str(task) for task in found["tasks"]]
    points = (folder / str(point.get("run", "")) for method in found["methods"] for point in method["points"])
    accuracies = [{"name": ACCURACY, "better": "higher"}] * len(tasks)
    return {
        "setting": next((settings[run] for run in points if run in settings), str(found["setting"])),
        "folder": folder.name,
        "tasks": tasks,
        "metrics": [_metric(each) for each, _ in zip(found.get("metrics", accuracies), tasks, strict=True)],
        "methods": [_method(each, len(tasks)) for each in found["methods"]],
        "differences": [_difference(each) for each in found.get("differences", ())],
        "dominated": [
            {
                **{key: str(each[key]) for key in ("space", "method", "by")},
                **{key: int(each[key]) for key in ("dominated", "points")},
            }
            for each in found.get("dominated", ())
        ],
        "diverged": [_diverged(each) for each in found.get("diverged", ())],
    }


def _metric(found: Mapping[str, Any]) -> dict[str, Any]:
    """What a task is judged by; fronts of earlier versions have accuracies."""
    return {"name": str(found["name"]), "higher": found["better"] == "higher"}


def _method(found: Mapping[str, Any], m: int) -> dict[str, Any]:
    points = [
        {
            "value": each.get("value"),
            "seed": int(each["seed"]),
            "scores": _scores(each["scores"], m),
            "losses": _numbers(each["losses"], m),
        }
        for each in found["points"]
    ]
    volumes = {space: _interval(each) | {"by_seed": _seeds(each)} for space, each in found["hypervolume"].items()}
    over = found.get("over")
    return {
        "label": str(found["label"]),
        "method": str(found["method"]),
        "over": None if over is None else str(over),
        "points": points,
        "hypervolume": volumes,
    }


def _diverged(found: Mapping[str, Any]) -> dict[str, Any]:
    """A point that is not in the front, because its runs diverged with these seeds."""
    over = found.get("over")
    return {
        "label": str(found["label"]),
        "over": None if over is None else str(over),
        "value": found.get("value"),
        "seeds": [int(seed) for seed in found["seeds"]],
    }


def _difference(found: Mapping[str, Any]) -> dict[str, Any]:
    spaces = {space: _interval(each) for space, each in found.items() if isinstance(each, Mapping)}
    return {"methods": [str(name) for name in found["methods"]], **spaces}


def _interval(found: Mapping[str, Any]) -> dict[str, float | None]:
    return {key: _number(found.get(key)) for key in ("mean", "low", "high")}


def _seeds(found: Mapping[str, Any]) -> list[float]:
    """The values of the seeds; the mean alone where the file does not have them."""
    values = found.get("by_seed") or {"": found.get("mean")}
    return [value for value in values.values() if _number(value) is not None]


def _scores(values: Any, count: int) -> list[float | None]:
    """One number per task; None where a task's metric is not defined for a run."""
    found = [None if value is None else _numbers([value], 1)[0] for value in values]
    if len(found) != count:
        raise ValueError("scores are missing")
    return found


def _numbers(values: Any, count: int) -> list[float]:
    found = [_number(value) for value in values]
    if len(found) != count or None in found:
        raise ValueError("numbers are missing")
    return [value for value in found if value is not None]


def _number(value: Any) -> float | None:
    return float(f"{value:.6g}") if is_number(value) and math.isfinite(value) else None
