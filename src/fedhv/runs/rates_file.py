"""`rates.json` of a study: the local learning rate that was chosen for each method, and among which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedhv.support.errors import InputError
from fedhv.support.jsonfile import Fields, read_object, write_object

NAME = "rates.json"
VERSION = 1
"""Of the format."""


@dataclass(frozen=True)
class TriedRate:
    """One local learning rate of a method.

    Attributes:
        rate: The local learning rate.
        folder: Of its runs, seen from the study's.
        score: The mean over seeds, larger is better; None if a run diverged.
    """

    rate: float
    folder: str
    score: float | None


@dataclass(frozen=True)
class ChosenRate:
    """The local learning rate of one method.

    Attributes:
        rate: The chosen one.
        how: How it was chosen.
        tried: All that were tried, in their order.
    """

    rate: float
    how: str
    tried: tuple[TriedRate, ...]

    @property
    def folder(self) -> str:
        """Of the runs with the chosen rate."""
        return next(each.folder for each in self.tried if each.rate == self.rate)

    def as_dict(self) -> dict[str, Any]:
        """As `rates.json` has it."""
        tried = [{"local_lr": each.rate, "folder": each.folder, "score": each.score} for each in self.tried]
        return {"local_lr": self.rate, "how": self.how, "tried": tried}


def write_rates(folder: Path, chosen: Mapping[str, ChosenRate]) -> None:
    """Write the choices of some methods into the study's folder; those of its other methods are kept."""
    try:
        before = read_rates(folder)
    except InputError:
        before = {}  # it is written anew
    methods = {name: each.as_dict() for name, each in {**before, **chosen}.items()}
    write_object(folder / NAME, {"version": VERSION, "methods": methods})


def read_rates(folder: Path) -> dict[str, ChosenRate]:
    """The choice of every method; empty if the study has no such file."""
    path = folder / NAME
    try:
        methods = Fields(read_object(path)).object("methods")
        return {name: _read(methods.object(name)) for name in methods}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError(f"{path} could not be read: {error}.") from None


def _read(found: Fields) -> ChosenRate:
    tried = tuple(
        TriedRate(each.number("local_lr"), each.text("folder"), each.number("score") if "score" in each else None)
        for each in found.objects("tried")
    )
    rate = found.number("local_lr")
    if rate not in {each.rate for each in tried}:
        raise ValueError("`local_lr` should be one of those that were tried")
    return ChosenRate(rate, found.text("how"), tried)
