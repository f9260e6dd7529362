"""Notes on what is missing in a study: unfinished runs, missing seeds, different lengths, damaged files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedhv.report.groups import SettingStudy
from fedhv.report.problems import code_notes


def gaps(settings: Sequence[SettingStudy]) -> list[str]:
    """One sentence per missing item."""
    if not any(setting.runs for setting in settings):
        return ["no runs yet"]
    return [f"{setting.name}: {note}" for setting in settings for note in _of(setting)]


def _of(setting: SettingStudy) -> Iterator[str]:
    for run in setting.runs:
        yield from (f"{run.name}: {note}" for note in run.notes)
    yield from _unfinished(setting)
    yield from _seeds(setting)
    yield from _lengths(setting)
    yield from _references(setting)
    yield from code_notes([(group.label, group.runs) for group in setting.groups])
    yield from _precisions(setting)
    yield from _hypervolumes(setting)


def _unfinished(setting: SettingStudy) -> Iterator[str]:
    searched = {id(group) for group in setting.others}
    for group in setting.all_groups:
        if id(group) in searched:  # most trials of a tuning end early
            continue
        for run in group.runs:
            if run.finished:
                continue
            if not len(run.rounds):
                yield f"{run.name} has no rounds yet"
                continue
            state = f"{run.name} has not finished: {run.done} of {run.planned} rounds"
            if not len(run.evaluations):
                yield f"{state}, none of them evaluated"
            else:
                yield state + ("" if run in group.counted else "; tables leave it out")


def _seeds(setting: SettingStudy) -> Iterator[str]:
    methods = tuple(group for group in setting.groups if not group.variant)
    absent: dict[str, set[int]] = {}
    for compared in (methods, *(sweep.groups for sweep in setting.sweeps)):
        seeds = {run.seed for group in compared for run in group.runs}
        for group in compared:
            absent.setdefault(group.label, set()).update(seeds - {run.seed for run in group.runs})
    for label, lacking in absent.items():
        if lacking:
            yield f"{label} has no run with seed{'s' if len(lacking) > 1 else ''} {_list(sorted(lacking))}"
    if setting.groups and all(len(group.runs) == 1 for group in setting.groups):
        yield "one seed only, so there are no standard deviations"


def _lengths(setting: SettingStudy) -> Iterator[str]:
    """Notes on compared runs of different lengths; an ablation of the rounds needs none."""
    lengths = sorted({run.planned for group in setting.groups for run in group.runs if run.planned})
    if len(lengths) > 1:
        yield f"runs that are compared have different numbers of rounds: {_list(lengths)}"


def _references(setting: SettingStudy) -> Iterator[str]:
    for group in setting.all_groups:
        references = {tuple(round(v, 6) for v in run.reference.values) for run in group.runs if run.reference}
        if len(references) > 1:
            yield f"runs of {group.label} have different references"


def _precisions(setting: SettingStudy) -> Iterator[str]:
    known = (run.record.machine.get("precision") for group in setting.groups for run in group.runs)
    found = sorted({each for each in known if isinstance(each, str)})
    if len(found) > 1:
        yield f"runs that are compared have different precisions: {_list(found)}"


def _hypervolumes(setting: SettingStudy) -> Iterator[str]:
    if any(run.evaluations.lacks("hypervolume") for run in setting.runs):
        values = sorted({run.record.evaluation_reference for run in setting.runs if len(run.evaluations)})
        different = f"runs have different values of `evaluation.reference`: {_list([f'{v:g}' for v in values])}"
        yield f"hypervolumes are left out, as {different}"


def _list(items: Sequence[object]) -> str:
    return ", ".join(map(str, items))
