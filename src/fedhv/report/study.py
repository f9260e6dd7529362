"""From runs to a study: sort them by setting, method and variant, and list what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedhv.report.beside import read_beside
from fedhv.report.gaps import gaps
from fedhv.report.groups import Group, ReportSweep, SettingStudy, StudyData, method_rank, setting_rank
from fedhv.report.problems import Problems
from fedhv.report.reading import Reader, RunData, unique_titles
from fedhv.report.rounds import conform
from fedhv.report.variants import Changes, factor_order, frozen, hyper_parameters, sort_key, variants


def read_study(folders: Sequence[str | Path], reader: Reader | None = None) -> StudyData:
    """The finished and unfinished runs below some folders. A `reader` caches files that have not changed."""
    places = [Path(folder) for folder in folders]
    runs, notes = (reader or Reader(places)).read()
    study = make_study(", ".join(unique_titles(places).values()), runs, notes)
    settings = {
        run.record.folder.resolve(): setting.name
        for setting in study.settings
        for run in setting.runs
        if run.record.folder is not None
    }
    beside = read_beside(places, settings)
    return replace(study, beside=beside, notes=(*study.notes, *beside.notes))


def make_study(title: str, runs: Iterable[RunData], notes: Iterable[str] = ()) -> StudyData:
    """Sort runs and list what is missing."""
    settings, doubles = [], []
    found, others = _by_setting(list(runs))
    for name, problem in found.items():
        kept, double = _distinct(problem.runs)
        settings.append(_setting(name, problem.tasks, kept))
        doubles += double
    return StudyData(title, tuple(settings), (*notes, *others, *doubles, *gaps(settings)))


def _by_setting(runs: Sequence[RunData]) -> tuple[dict[str, Problems], list[str]]:
    """The runs of every setting and problem; a name that is used for several problems gets a number, and a note."""
    found: dict[str, list[Problems]] = {}
    notes: dict[str, list[str]] = {}
    for run in sorted(runs, key=lambda run: not run.tasks):  # runs whose tasks are not known yet come last
        problems = found.setdefault(run.setting, [])
        alike = [each for each in problems if run.tasks in (each.tasks, ())]
        home = next((each for each in alike if not each.differs(run)), None)
        if home is None:
            home = Problems(run.tasks)
            problems.append(home)
            if alike:
                other, own = (_numbered(run.setting, problems.index(each)) for each in (alike[0], home))
                what = ", ".join(alike[0].differs(run))
                notes.setdefault(run.setting, []).append(
                    f"{own} is another problem than {other}, so they have tables of their own: {run.name} differs in "
                    f"{what}"
                )
        home.add(run)
    names = sorted(found, key=setting_rank)
    numbered = {_numbered(name, i): problem for name in names for i, problem in enumerate(found[name])}
    return numbered, [note for name in names for note in notes.get(name, [])]


def _numbered(setting: str, i: int) -> str:
    return f"{setting} #{i + 1}" if i else setting


def _setting(name: str, tasks: tuple[str, ...], runs: Sequence[RunData]) -> SettingStudy:
    runs = sorted((_conform(run, len(tasks)) for run in _comparable(runs)), key=_order)
    members: dict[tuple[str, str], tuple[Changes, list[RunData]]] = {}
    for run, variant in zip(runs, variants(runs), strict=True):
        members.setdefault((run.method, _differs(variant)), (variant, []))[1].append(run)
    groups = [Group(method, variant, tuple(found)) for (method, _), (variant, found) in members.items()]
    sweeps = _sweeps(groups)
    in_sweep = {id(group) for sweep in sweeps for group in sweep.groups}
    with_default = {group.method for group in groups if not group.variant}
    compared = [
        g for g in groups if g.role.shown and (not g.variant or g.method not in with_default or id(g) not in in_sweep)
    ]
    order = {id(group): i for i, group in enumerate(groups)}
    compared.sort(key=lambda g: (method_rank(g.method), len(g.variant), order[id(g)]))
    others = [g for g in groups if not g.role.shown and id(g) not in in_sweep]
    return SettingStudy(name, tasks, tuple(compared), sweeps, tuple(runs), tuple(others))


def _comparable(runs: Sequence[RunData]) -> list[RunData]:
    """The runs, without their hypervolumes if these are relative to different references."""
    if len({run.record.evaluation_reference for run in runs if len(run.evaluations)}) < 2:
        return list(runs)
    return [replace(run, evaluations=run.evaluations.without("hypervolume")) for run in runs]


def _conform(run: RunData, m: int) -> RunData:
    rounds, evaluations = conform(run.rounds, run.evaluations, m)
    return replace(run, rounds=rounds, evaluations=evaluations)


def _order(run: RunData) -> tuple[Any, ...]:
    return method_rank(run.method), run.seed, run.name


def _sweeps(groups: Sequence[Group]) -> tuple[ReportSweep, ...]:
    sweeps = []
    for method in dict.fromkeys(group.method for group in groups):
        own = [group for group in groups if group.method == method and not _given_up(group)]
        default = next((group for group in own if not group.variant), None)
        for key in sorted({key for group in own for key, _ in group.variant}, key=factor_order):
            found = [(group.variant[0][1], group) for group in own if [k for k, _ in group.variant] == [key]]
            if default is not None and found:
                found.append((hyper_parameters(default.runs[0]).get(key), default))
            if len(found) > 1:
                found.sort(key=lambda each: sort_key(each[0]))
                sweeps.append(ReportSweep(method, key, tuple(v for v, _ in found), tuple(group for _, group in found)))
    return tuple(sweeps)


def _given_up(group: Group) -> bool:
    """Whether a search ended all its runs early, or they diverged: values of fewer rounds do not compare."""
    return group.role.part == "tried" and not any(run.finished for run in group.runs)


def _distinct(runs: Sequence[RunData]) -> tuple[list[RunData], list[str]]:
    """One run per method, hyper-parameters and seed: one that was chosen, else with more rounds, else the first.

    A hyper-parameter that only one of two runs has, because it is of a later version, is not a difference.
    """
    kept: dict[tuple[str, int, str], RunData] = {}
    notes = []
    for run, variant in zip(runs, variants(runs), strict=True):
        key = (run.method, run.seed, _differs(variant))
        other = kept.get(key)
        if other is None:
            kept[key] = run
        else:
            kept[key], double = (other, run) if _counts_more(other) >= _counts_more(run) else (run, other)
            notes.append(f"{double.name} is left out: {kept[key].name} has its method, hyper-parameters and seed")
    return list(kept.values()), notes


def _counts_more(run: RunData) -> tuple[bool, int]:
    return run.role.part == "chosen", run.done


def _differs(variant: Changes) -> str:
    return repr([(key, frozen(value)) for key, value in variant])
