"""What the folders of a study say about its runs: which ones were chosen, only tried, or are points of a front.

Such runs differ in what was searched. Tables that compare methods have the chosen ones, or they would compare searches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from fedhv.report.front_files import JSON as FRONT
from fedhv.runs.halving import TRIALS
from fedhv.runs.rates import choice_sentence
from fedhv.runs.rates_file import NAME as RATES
from fedhv.runs.rates_file import read_rates
from fedhv.support.errors import InputError
from fedhv.support.jsonfile import Fields, read_object

FILES = (RATES, TRIALS, FRONT)
"""The files of a study that say what its runs are for."""
Part = Literal["chosen", "compared", "tried", "point"]
PARTS: tuple[Part, ...] = get_args(Part)
"""The first of them decides on what several runs are together."""


@dataclass(frozen=True)
class Role:
    """What a run is in its study.

    Attributes:
        part: One of those "compared", as in a plain comparison; "chosen" among several; "tried" and not chosen; or a
            "point" of a front.
        how: How it was chosen.
    """

    part: Part = "compared"
    how: str = ""

    @property
    def shown(self) -> bool:
        """Whether tables that compare methods have it."""
        return self.part in ("compared", "chosen")


def read_roles(study: Path) -> tuple[dict[str, Role], list[str]]:
    """The roles of the folders in a study, by their names, and notes on files that cannot be read."""
    found: dict[str, Role] = {}
    notes = []
    for name, read in ((FRONT, _points), (TRIALS, _trials), (RATES, _rates)):
        path = study / name
        if path.is_file() and not path.is_symlink():
            try:
                found |= dict(read(path))
            except (InputError, OSError, ValueError):
                notes.append(f"{name} could not be read: runs that were tried cannot be told from those chosen")
    return found, notes


def _rates(path: Path) -> Iterator[tuple[str, Role]]:
    chosen = read_rates(path.parent)
    how = choice_sentence(chosen)
    for each in chosen.values():
        for tried in each.tried:
            yield tried.folder, Role("chosen", how) if tried.rate == each.rate else Role("tried")


def _trials(path: Path) -> Iterator[tuple[str, Role]]:
    found = Fields(read_object(path))
    how = f"Of each method's trials the chosen one is shown, with its scores on held-out examples. {found.text('how')}"
    for each in found.objects("trials"):
        yield each.text("name"), Role("chosen", how) if each.truth("chosen") else Role("tried")


def _points(path: Path) -> Iterator[tuple[str, Role]]:
    return ((name, Role("point")) for name in point_folders(path))


def point_folders(path: Path) -> Iterator[str]:
    """The folders of the points of a front, from its file; those of methods beside it are left out."""
    for method in Fields(read_object(path)).objects("methods"):
        if "over" in method:
            for point in method.objects("points"):
                yield point.text("run").partition("/")[0]
