"""`fedhv reproduce`: run missing runs, then compare our numbers with the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedhv.paper import tables
from fedhv.paper.diagnostics import efficiency_sheets, reference_sheets
from fedhv.paper.estimate import Forecast, forecasts
from fedhv.paper.experiments import EXPERIMENTS, Selection, chosen, make_plan
from fedhv.paper.found import Found, mixed_references, other_runs, read_states, unfinished_runs
from fedhv.paper.output import Output, Sheet, write_outputs
from fedhv.paper.running import Options, calibrations, run_missing
from fedhv.simulation.observer import Observer
from fedhv.support.errors import InputError

TABLES = "tables"
NARROWED = "narrowed"
"""The subfolder for tables of a part of the study, so that they do not replace the full tables."""


@dataclass(frozen=True)
class Reproduction:
    """The result: an output per experiment, the written files, and the errors of failed runs."""

    outputs: tuple[Output, ...]
    files: tuple[Path, ...]
    failures: tuple[str, ...] = ()


def reproduce(
    what: str,
    options: Options,
    selection: Selection | None = None,
    *,
    run: bool = True,
    observer: Observer | None = None,
) -> Reproduction:
    """Reproduce one of the paper's experiments, or all. Tables are in `tables`, those of a selection in a subfolder.

    Args:
        what: A name in `EXPERIMENTS`, or "all".
        options: How runs are computed.
        selection: The selected settings, methods, seeds and rounds.
        run: Whether missing runs are run; otherwise only existing runs are compared.
        observer: Receives progress.
    """
    selection = selection or Selection()
    names = _selected(what, selection)
    plan = make_plan(names, selection)
    failures: list[str] = []
    if run:
        failures = run_missing(plan, options, observer)
    elif not options.out.is_dir():
        there = "a file" if options.out.exists() else "no such folder"
        raise InputError(f"{options.out} should be the folder of a reproduction. Found {there}.")
    found = read_states(plan, options.out)
    outputs = tuple(_output(name, found, selection, options.out) for name in names)
    folder = options.out / TABLES if selection.whole else options.out / TABLES / NARROWED
    return Reproduction(outputs, tuple(write_outputs(outputs, folder)), tuple(failures))


def planned_runs(what: str, options: Options, selection: Selection | None = None) -> list[Forecast]:
    """The runs that `reproduce` would compute, in order, with estimated times. Nothing is written."""
    selection = selection or Selection()
    plan = make_plan(_selected(what, selection), selection)
    found = read_states(plan, options.out)
    return forecasts(found, calibrations(plan, found, options), options)


def _selected(what: str, selection: Selection) -> list[str]:
    """The experiments with at least one selected run; an error if a single experiment has none."""
    names = chosen(what)
    if len(names) == 1:
        return names
    return [name for name in names if _any(name, selection)] or names


def _any(name: str, selection: Selection) -> bool:
    try:
        make_plan([name], selection)
    except InputError:
        return False
    return True


def _output(name: str, found: Sequence[Found], selection: Selection, out: Path) -> Output:
    wanted = set(make_plan([name], selection).runs)
    mine = [each for each in found if each.run in wanted]
    count = sum(each.finished for each in mine)
    lacks = unfinished_runs(mine)
    head = [f"{len(mine) - count} of {len(mine)} runs are not finished"] if lacks else []
    notes = (*head, *lacks, *other_runs(mine), *mixed_references(mine))
    sheets = [_with_difference(sheet, selection) for sheet in _sheets(name, mine, selection, out)]
    return Output(name, EXPERIMENTS[name].title, tuple(sheets), notes)


def _with_difference(sheet: Sheet, selection: Selection) -> Sheet:
    """A table whose caption states rounds and seeds that differ from the paper's."""
    if sheet.table is None or sheet.name == "references" or not selection.difference:
        return sheet  # calibrated references depend on neither
    return replace(sheet, table=replace(sheet.table, caption=f"{selection.difference} {sheet.table.caption}"))


def _sheets(name: str, found: Sequence[Found], selection: Selection, out: Path) -> list[Sheet]:
    match name:
        case "references":
            return reference_sheets(found, selection, out)
        case "efficiency":
            return efficiency_sheets(found, selection)
    makers = {
        "main": tables.main,
        "loss-hv": tables.loss_hv,
        "per-task": tables.per_task,
        "ablations": tables.ablations,
        "last10": tables.last10,
    }
    return makers[name](found, selection)
