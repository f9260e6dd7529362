"""The table of fronts: how many points every method has, and their hypervolumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedhv.report.cells import Cell, Column, Table, words
from fedhv.report.comparison import METHOD, SETTING, setting_cell
from fedhv.report.front_files import SPACE_NAMES
from fedhv.report.groups import StudyData, method_title
from fedhv.support.statistics import Spread


def fronts(study: StudyData) -> Table:
    """Every method's front, of the settings of this study; a setting with several fronts has their folders' names."""
    names = {setting.name for setting in study.settings}
    found = [front for front in study.beside.fronts if front["setting"] in names and front["methods"]]
    several = len({front["setting"] for front in found}) < len(found)
    methods = [method for front in found for method in front["methods"]]
    spaces = [space for space in SPACE_NAMES if any(space in method["hypervolume"] for method in methods)]
    columns = (
        SETTING,
        *([Column("Folder", numeric=False)] if several else []),
        METHOD,
        Column("Over", numeric=False),
        Column("Points"),
        *(Column(SPACE_NAMES[space], "HV of", higher=True) for space in spaces),
    )
    sections = []
    for front in found:
        names_of = (setting_cell(front["setting"]), *([words(front["folder"])] if several else []))
        sections.append(tuple((*names_of, *_cells(method, spaces)) for method in front["methods"]))
    repeated = any(len(_by_seed(method, space)) > 1 for method in methods for space in spaces)
    over_seeds = ", mean ± sample standard deviation over seeds" if repeated else ""
    caption = f"Hypervolume (HV) of every method's points{over_seeds}. More points alone make a front larger."
    return Table("fronts", "Fronts", caption, columns, tuple(sections))


def _cells(method: Mapping[str, Any], spaces: Sequence[str]) -> tuple[Cell, ...]:
    points = len({str(point["value"]) for point in method["points"]})
    return (
        words(method_title(method["method"]) if method["label"] == method["method"] else method["label"]),
        words(method["over"] or "one point"),
        Cell(str(points), value=points),
        *(_volume(method, space) for space in spaces),
    )


def _volume(method: Mapping[str, Any], space: str) -> Cell:
    values = _by_seed(method, space)
    return Cell(spread=Spread.of(values), digits=4) if values else Cell("–")


def _by_seed(method: Mapping[str, Any], space: str) -> list[float]:
    found: list[float] = method["hypervolume"].get(space, {}).get("by_seed", [])
    return found
