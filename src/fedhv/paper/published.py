"""The paper's numbers: `published_tables/*.toml`, one file for every table, with the digits as they are printed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, cast

from fedhv.support import toml
from fedhv.support.errors import InputError, unknown

Mark = Literal["", "best", "second"]
Contest = tuple[str, ...]
"""A group of compared methods or variants: ("multimnist",), ("multimnist", "task 1"), ("report",)."""
Results = dict[Contest, dict[str, dict[str, "Printed"]]]
"""Contest → competitor → metric → printed number."""

_PRINTED = re.compile(r"(\d+(?:\.(\d+))?)(?: ± (\d+(?:\.(\d+))?))?(?: (best|second))?")


@dataclass(frozen=True)
class Printed:
    """A number as a table prints it.

    Attributes:
        mean: The number itself.
        deviation: The number after "±".
        digits: Digits after the decimal point.
        mark: "best" if bold, "second" if underlined. The paper ranks by unrounded means.
    """

    mean: float
    deviation: float | None = None
    digits: int = 2
    mark: Mark = ""

    @classmethod
    def of(cls, text: str) -> Printed:
        """From, for example, "90.72 ± 0.65 best"."""
        found = _PRINTED.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise InputError(f"A printed number should look like '90.72 ± 0.65 best'. Found {text!r}.")
        mean, decimals, deviation, more, mark = found.groups()
        if deviation is not None and len(more or "") != len(decimals or ""):
            raise InputError(f"Mean and deviation should have equally many digits. Found {text!r}.")
        spread = None if deviation is None else float(deviation)
        return cls(float(mean), spread, len(decimals or ""), cast(Mark, mark or ""))


def names() -> list[str]:
    """The names of the tables."""
    return sorted(path.stem for path in _folder().glob("*.toml"))


@cache
def table(name: str) -> dict[str, Any]:
    """The content of one table's file."""
    path = _folder() / f"{name}.toml"
    if not path.is_file():
        raise unknown("table of the paper", name, names())
    found = toml.read(path)
    if not isinstance(found.get("label"), str):
        raise InputError(f"{path}: expected the table's printed number as `label`. Found none.")
    return found


@cache
def results(name: str) -> Results:
    """A table of means: contests of competitors, each with the same metrics, the best and the second marked."""
    path = _folder() / f"{name}.toml"
    found: Results = {}
    for contest, competitors in table(name).items():
        if contest == "label":
            continue
        for competitor, metrics in competitors.items():
            for place, metric, text in _values(contest, metrics):
                try:
                    value = Printed.of(text)
                except InputError as error:
                    raise InputError(f"{path}, {'.'.join(place)}.{competitor}.{metric}: {error}") from None
                found.setdefault(place, {}).setdefault(competitor, {})[metric] = value
    check_results(found, str(path))
    return found


def _values(contest: str, metrics: Mapping[str, Any]) -> Iterator[tuple[Contest, str, Any]]:
    """The values of a contest. A list has one value per task, and every task is a separate contest."""
    for metric, value in metrics.items():
        if isinstance(value, list):
            for i, text in enumerate(value, start=1):
                yield (contest, f"task {i}"), metric, text
        else:
            yield (contest,), metric, value


def check_results(found: Results, where: str) -> None:
    """Every competitor has every metric in the same digits; one is marked best and another second."""
    digits: dict[str, int] = {}
    for contest, competitors in found.items():
        metrics = list(next(iter(competitors.values())))
        for competitor, values in competitors.items():
            if list(values) != metrics:
                raise InputError(
                    f"{where}, {'.'.join(contest)}.{competitor}: expected {metrics}. Found {list(values)}."
                )
        for metric in metrics:
            column = [values[metric] for values in competitors.values()]
            if {value.digits for value in column} != {digits.setdefault(metric, column[0].digits)}:
                raise InputError(
                    f"{where}, {'.'.join(contest)}: `{metric}` should have {digits[metric]} digits throughout."
                )
            marks = sorted(value.mark for value in column if value.mark)
            if marks != ["best", "second"]:
                raise InputError(
                    f"{where}, {'.'.join(contest)}: `{metric}` should mark best and second. Found {marks}."
                )


@dataclass(frozen=True)
class PaperReference:
    """A family's frozen training reference."""

    family: str
    settings: tuple[str, ...]
    values: tuple[Printed, ...]


def training_references() -> list[PaperReference]:
    """The references that the paper's FedHV runs used."""
    return [
        PaperReference(family, tuple(entry["settings"]), tuple(map(Printed.of, entry["values"])))
        for family, entry in table("training-references").items()
        if family != "label"
    ]


@dataclass(frozen=True)
class PaperDiagnostics:
    """The smallest slack of the paper's reports, and how often the floor was used."""

    slack: Printed
    floored: int
    out_of: int


def reference_diagnostics() -> dict[str, PaperDiagnostics]:
    """For every setting."""
    return {
        setting: PaperDiagnostics(
            Printed.of(entry["minimum_report_slack"]), entry["floor_activations"], entry["out_of"]
        )
        for setting, entry in table("reference-diagnostics").items()
        if setting != "label"
    }


@dataclass(frozen=True)
class PaperEfficiency:
    """The costs of the paper's methods: `rounds` adaptive rounds on `setting`, FedHV's calibration included."""

    setting: str
    rounds: int
    methods: dict[str, dict[str, Printed]]


def efficiency() -> PaperEfficiency:
    """Seconds and megabytes; totals are from the paper's complexity table."""
    found = table("empirical-efficiency")
    methods = {
        method: {"total_megabytes": Printed.of(entry["megabytes"])}
        for method, entry in table("complexity-comparison").items()
        if method != "label"
    }
    for method in methods:
        methods[method] |= {key: Printed.of(text) for key, text in found.get(method, {}).items()}
    return PaperEfficiency(found["setting"], found["rounds"], methods)


def _folder() -> Path:
    return Path(str(resources.files("fedhv") / "paper" / "published_tables"))
