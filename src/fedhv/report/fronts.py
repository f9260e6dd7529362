"""The table of fronts: how many points every method has, and their hypervolumes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedhv.report.cells import Cell, Column, Table, words
from fedhv.report.comparison import METHOD, SETTING, setting_cell
from fedhv.report.front_files import SPACE_NAMES
from fedhv.report.groups import StudyData, method_title


def fronts(study: StudyData) -> Table:
    """Every method's front, of the settings of this study."""
    names = {setting.name for setting in study.settings}
    found = [front for front in study.beside.fronts if front["setting"] in names]
    spaces = [space for space in SPACE_NAMES if any(space in m["hypervolume"] for f in found for m in f["methods"])]
    columns = (
        SETTING,
        METHOD,
        Column("Over", numeric=False),
        Column("Points"),
        *(Column(SPACE_NAMES[space], "HV of", higher=True) for space in spaces),
    )
    sections = tuple(tuple(_row(front["setting"], method, spaces) for method in front["methods"]) for front in found)
    caption = (
        "Hypervolume (HV) of every method's points, mean over seeds and Student's 95 % interval. A front with more "
        "points reaches further by their number alone."
    )
    return Table("fronts", "Fronts", caption, columns, sections)


def _row(setting: str, method: Mapping[str, Any], spaces: list[str]) -> tuple[Cell, ...]:
    points = len({str(point["value"]) for point in method["points"]})
    return (
        setting_cell(setting),
        words(_title(method)),
        words(method["over"] or "one point"),
        Cell(str(points), value=points),
        *(_volume(method["hypervolume"].get(space, {})) for space in spaces),
    )


def _title(method: Mapping[str, Any]) -> str:
    return method_title(method["method"]) if method["label"] == method["method"] else method["label"]


def _volume(found: Mapping[str, float | None]) -> Cell:
    mean, low, high = (found.get(key) for key in ("mean", "low", "high"))
    if mean is None:
        return Cell("–")
    interval = "" if low is None or high is None else f" [{low:.4f}, {high:.4f}]"
    return Cell(f"{mean:.4f}{interval}", value=mean)
