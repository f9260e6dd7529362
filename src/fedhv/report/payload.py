"""The data of the page: a study as JSON, rounded and thinned so that a page stays small."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedhv._version import __version__
from fedhv.protocol.evaluation import AGGREGATES
from fedhv.report.cells import Table
from fedhv.report.comparison import ReportMetric, final, row_of
from fedhv.report.groups import Group, SettingStudy, StudyData
from fedhv.report.palette import Style, styles, task_styles
from fedhv.report.reading import RunData
from fedhv.report.rounds import Array
from fedhv.report.tables import tables
from fedhv.support import toml

BUDGET = 320_000
"""The largest number of values, at six or seven characters each, in a page of less than 3 MB."""
METRICS = (
    ("mean_accuracy", "Mean accuracy", " %", True, 2),
    ("worst_accuracy", "Worst-task accuracy", " %", True, 2),
    ("mean_loss", "Mean loss", "", False, 3),
    ("hypervolume", "Hypervolume", "", True, 2),
)


def payload(study: StudyData) -> dict[str, Any]:
    """All data of the page."""
    looks, step = styles(study), thinning(study)
    notes = [*study.notes]
    if step > 1:
        notes.append(f"curves on this page show every {_ordinal(step)} round; tables and figures use all of them")
    return {
        "title": study.title,
        "version": __version__,
        "notes": notes,
        "metrics": [{"key": key, "title": title, "unit": unit} for key, title, unit, _, _ in METRICS],
        "settings": [_setting(setting, looks, step) for setting in study.settings],
        "tables": [_table(table) for table in tables(study)],
    }


def thinning(study: StudyData, budget: int = BUDGET) -> int:
    """The interval of shown rounds, so that the numbers fit into the budget."""
    count = 0
    for run in study.runs:
        m = run.rounds.weights.shape[1]
        kinds = sum(not _constant(values) for values in (run.rounds.weights, run.rounds.slack))
        count += len(run.rounds) * (1 + kinds * m) + len(run.evaluations) * (len(AGGREGATES) + 3 + 2 * m)
    return max(1, math.ceil(count / budget))


def _setting(setting: SettingStudy, looks: dict[str, Style], step: int) -> dict[str, Any]:
    index = {id(run): i for i, run in enumerate(setting.runs)}
    compared = {id(group) for group in setting.groups}
    return {
        "name": setting.name,
        "tasks": list(setting.tasks),
        "taskStyles": [_style(style) for style in task_styles(setting.tasks)],
        "highlights": list(_highlights(setting)),
        "series": [
            {
                "label": group.label,
                "compared": id(group) in compared,
                "runs": [index[id(run)] for run in group.runs],
                "floor": group.runs[0].record.parameters.get("floor"),
                **_style(looks[group.label]),
            }
            for group in setting.all_groups
        ],
        "runs": [_run(run, step) for run in setting.runs],
    }


def _run(run: RunData, step: int) -> dict[str, Any]:
    rounds, evaluations = run.rounds, run.evaluations
    shown, judged = _thin(len(rounds), step), _thin(len(evaluations), step)
    at = np.searchsorted(rounds.number, evaluations.round[judged])
    spent_bytes = np.cumsum(np.nan_to_num(rounds.down + rounds.up))
    spent_seconds = np.cumsum(np.nan_to_num(rounds.seconds))
    return {
        "name": run.name,
        "method": run.method,
        "seed": run.seed,
        "state": "finished" if run.finished else f"{run.done} of {run.planned} rounds",
        "rounds": run.done,
        "config": toml.write(run.record.config),
        "calibration": [run.calibration_bytes, round(run.calibration_seconds, 3)],
        "round": rounds.number[shown].tolist(),
        "weights": _columns(rounds.weights[shown], 4),
        "slack": _columns(rounds.slack[shown], 4),
        "evaluated": evaluations.round[judged].tolist(),
        "bytes": [int(value) for value in spent_bytes[at]],
        "seconds": _numbers(spent_seconds[at], 6),
        "accuracy": _columns(evaluations.accuracy[judged], 5),
        "loss": _columns(evaluations.loss[judged], 4),
        **{name: _numbers(evaluations.values(name)[judged], 7) for name in AGGREGATES},
    }


def _highlights(setting: SettingStudy) -> Iterable[dict[str, Any]]:
    """The best method of every aggregate, and its distance to the second."""
    by_label: dict[str, Group] = {group.label: group for group in setting.groups if group.counted}
    for key, title, unit, higher, digits in METRICS:
        row = row_of(by_label, list(by_label), ReportMetric(title, final(key), higher, digits))
        cells = dict(zip(by_label, row, strict=True))
        known = {label: cell for label, cell in cells.items() if cell.number is not None and np.isfinite(cell.number)}
        order = sorted(known, key=lambda label: known[label].number or 0.0, reverse=higher)
        if not order:
            continue
        text = ""
        if len(order) > 1:
            ahead = abs((known[order[0]].number or 0.0) - (known[order[1]].number or 0.0))
            gap = f"{ahead:.{digits}f}" if ahead < 1e6 else f"{ahead:.2e}"
            points = " points" if unit else ""
            text = f"{gap}{points} {'above' if higher else 'below'} {order[1]}" if ahead else f"equal to {order[1]}"

        unfinished = "not finished yet" if by_label[order[0]].unfinished else ""
        yield {
            "title": title,
            "label": order[0],
            "value": known[order[0]].plain + unit,
            "note": "; ".join(filter(None, (text, unfinished))),
        }


def _table(table: Table) -> dict[str, Any]:
    return {
        "name": table.name,
        "title": table.title,
        "caption": table.caption,
        "columns": [
            {"heading": c.heading + c.arrow, "group": c.group, "numeric": c.numeric, "higher": c.higher}
            for c in table.columns
        ],
        "rows": [
            [{"t": cell.plain, "v": _number(cell.number, 12), "r": cell.rank if (cell.rank or 9) < 3 else None}
             for cell in row]
            for row in table.rows
        ],
    }  # fmt: skip


def _style(style: Style) -> dict[str, Any]:
    return {"colour": style.colour, "dash": list(style.dash)}


def _thin(n: int, step: int) -> Array:
    """Every `step`th of n positions, and always the last one."""
    return np.arange(n - 1, -1, -step)[::-1] if n else np.empty(0, dtype=np.int64)


def _columns(values: Array, digits: int) -> list[Any] | None:
    """One list per task; one number for a constant column, None if all values are unknown."""
    if not values.size or not np.isfinite(values).any():
        return None
    return [_number(column[0], digits) if _constant(column) else _numbers(column, digits) for column in values.T]


def _constant(values: Array) -> bool:
    return not np.isfinite(values).any() or bool((values == values[:1]).all())


def _numbers(values: Sequence[float] | Array, digits: int) -> list[float | None]:
    return [_number(value, digits) for value in values]


def _number(value: float | None, digits: int) -> float | None:
    """A number with the given significant digits; JSON has neither NaN nor infinity."""
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded == int(rounded) and abs(rounded) < 1e15 else rounded


def _ordinal(n: int) -> str:
    return {1: "1st", 2: "2nd", 3: "3rd"}.get(n, f"{n}th")
