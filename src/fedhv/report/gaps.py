"""What a study lacks, in sentences: unfinished runs, missing seeds, different lengths, damaged files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedhv.report.groups import Group, SettingStudy
from fedhv.report.reading import RunData
from fedhv.report.variants import value_text


def gaps(settings: Sequence[SettingStudy]) -> list[str]:
    """One sentence for everything that is missing."""
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
    yield from _hypervolumes(setting)


def _unfinished(setting: SettingStudy) -> Iterator[str]:
    for group in setting.all_groups:
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
            yield f"{label} has no run with seed{_plural(sorted(lacking))} {_list(sorted(lacking))}"
    if all(len(group.runs) == 1 for group in setting.groups):
        yield "one seed only, so there are no standard deviations"


def _lengths(setting: SettingStudy) -> Iterator[str]:
    """Where what is ranked together has different lengths; an ablation of the rounds says so by itself."""
    lengths: dict[int, list[str]] = {}
    for group in setting.groups:
        for planned in sorted({run.planned for run in group.runs if run.planned}):
            who = _some(group, [run for run in group.runs if run.planned == planned])
            lengths.setdefault(planned, []).append(who)
    if len(lengths) > 1:
        parts = [f"{rounds} ({', '.join(who)})" for rounds, who in sorted(lengths.items())]
        yield f"runs that are compared have different numbers of rounds: {'; '.join(parts)}"


def _references(setting: SettingStudy) -> Iterator[str]:
    for group in setting.all_groups:
        with_one = [run for run in group.runs if run.reference]
        if len({_rounded(run) for run in with_one}) > 1:
            yield f"runs of {group.label} have different references"


def _hypervolumes(setting: SettingStudy) -> Iterator[str]:
    if not any(run.evaluations.lacks("hypervolume") for run in setting.runs):
        return
    against: dict[float, list[str]] = {}
    for group in setting.all_groups:
        evaluated = [run for run in group.runs if len(run.evaluations)]
        for reference in sorted({run.record.evaluation_reference for run in evaluated}):
            who = _some(group, [run for run in evaluated if run.record.evaluation_reference == reference])
            against.setdefault(reference, []).append(who)
    parts = [f"{value_text(reference)} ({', '.join(who)})" for reference, who in sorted(against.items())]
    yield f"hypervolumes are left out, as runs have different values of `evaluation.reference`: {'; '.join(parts)}"


def _rounded(run: RunData) -> tuple[float, ...]:
    assert run.reference is not None
    return tuple(round(value, 6) for value in run.reference.values)


def _some(group: Group, runs: Sequence[RunData]) -> str:
    """The group, or the seeds of those of its runs that are meant."""
    seeds = [run.seed for run in runs]
    return group.label if len(seeds) == len(group.runs) else f"{group.label} seed{_plural(seeds)} {_list(seeds)}"


def _plural(items: Sequence[object]) -> str:
    return "s" if len(items) > 1 else ""


def _list(items: Sequence[object]) -> str:
    return ", ".join(str(item) for item in items)
