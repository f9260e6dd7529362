"""Variants of a method: the same method several times in one study, with other hyper-parameters each time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedhv.methods import Method
from fedhv.support.errors import InputError

NAMED = 3
"""How many variants an error names."""


@dataclass(frozen=True)
class Variant:
    """A method with hyper-parameters of its own.

    Attributes:
        name: Of the variant in the study; empty if the study has the method once.
        method: The method with its hyper-parameters.
    """

    name: str
    method: Method

    def place(self, study: Path, seed: int) -> Path:
        """The folder of its run: `METHOD-seedSEED` in the study's folder, or in the variant's folder in it."""
        return study / self.name / f"{self.method.label}-seed{seed}"


def check_includes(path: Path, read: Callable[[Path], Iterable[str]], now: Collection[str], remedy: str) -> None:
    """Raise an error if a search would leave out of its file what an earlier one in the same folder has there.

    A report would show the runs that are left out as if they were compared. `read` gives the names in the file; one
    that is not there, or is damaged, is written anew.
    """
    try:
        left = [name for name in dict.fromkeys(read(path)) if name not in now]
    except (OSError, ValueError):
        return
    if left:
        named = ", ".join(left[:NAMED]) + (f" and {len(left) - NAMED} more" if len(left) > NAMED else "")
        raise InputError(f"{path} has {named}, which would be left out. {remedy}, or choose another --out.")


def as_variants(methods: Sequence[Method | Variant]) -> list[Variant]:
    """The variants of a study. Two that would share a folder are rejected."""
    found = [each if isinstance(each, Variant) else Variant("", each) for each in methods]
    places = [each.place(Path(), 0) for each in found]
    if len(set(places)) < len(places):
        raise InputError(f"A study should name every variant of a method differently. Found {list(map(str, places))}.")
    return found
