"""What a comparison came to, in sentences: from paired intervals over seeds, without a crown for a tie."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from fedhv.report.comparison import ReportMetric, RunValue, by_seed, final, row_of
from fedhv.report.groups import ORDER, Group, SettingStudy
from fedhv.report.ranking import ahead, paired
from fedhv.report.reading import RunData
from fedhv.report.scores import common_main, main_value, mains_of
from fedhv.support.statistics import Paired

METRICS = (
    ("mean_accuracy", "Mean accuracy", " %", True, 2),
    ("worst_accuracy", "Worst-task accuracy", " %", True, 2),
    ("mean_loss", "Mean loss", "", False, 3),
    ("hypervolume", "Hypervolume", "", True, 2),
)
"""Key, title, unit, whether more is better, digits."""


def verdicts(setting: SettingStudy) -> list[dict[str, Any]]:
    """FedHV, or else the last method, against every other; Uniform comes first."""
    groups = [group for group in setting.groups if group.counted]
    if len(groups) < 2:
        return []
    ours = next((g for g in groups if g.method == ORDER[-1] and not g.variant), groups[-1])
    others = sorted((g for g in groups if g is not ours), key=lambda g: (g.method != ORDER[0], bool(g.variant)))
    return [{"against": other.label, "text": _sentence(setting, ours, other)} for other in others]


@dataclass(frozen=True)
class _Judge:
    """How tasks are compared; more is better in all values.

    Attributes:
        worst: A run's worst task; None where tasks are judged by different metrics.
        task: A run's value of a task, by its number.
        name: The metric's name; empty for accuracies, whose differences are points.
        digits: After the decimal point.
    """

    worst: RunValue | None
    task: Callable[[int], RunValue]
    name: str = ""
    digits: int = 1

    @property
    def unit(self) -> str:
        """What follows a difference."""
        return "" if self.name else " points"


def _judge(setting: SettingStudy) -> _Judge:
    mains = mains_of(setting)
    if mains is None:
        return _Judge(final("worst_accuracy"), lambda i: final(f"accuracy.{i}"))
    tasks = [_signed(main_value(i, score.name), score.higher) for i, score in enumerate(mains)]
    common = common_main(mains)
    if common is None:
        return _Judge(None, tasks.__getitem__)
    return _Judge(_over(tasks, min), tasks.__getitem__, common.name, common.digits)


def _signed(value: RunValue, higher: bool) -> RunValue:
    def of(run: RunData) -> float | None:
        found = value(run)
        return found if found is None or higher else -found

    return of


def _over(values: Sequence[RunValue], combine: Callable[[list[float]], float]) -> RunValue:
    def of(run: RunData) -> float | None:
        found = [number for value in values if (number := value(run)) is not None]
        return combine(found) if len(found) == len(values) else None

    return of


def _sentence(setting: SettingStudy, ours: Group, other: Group) -> str:
    judge = _judge(setting)
    unfinished = " so far" if ours.unfinished or other.unfinished else ""
    if judge.worst is None:
        return _by_tasks(setting, judge, ours, other, unfinished)
    worst = _difference(ours, other, judge.worst)
    where, digits = f" in {judge.name}" if judge.name else "", judge.digits
    if worst is None:
        found = [judge.worst(run) for run in _one_seed(ours, other)]
        gap = math.nan if found[0] is None or found[1] is None else found[0] - found[1]
        side = ("better than" if gap >= 0 else "worse than") if judge.name else ("above" if gap >= 0 else "below")
        return (
            f"{ours.label}'s worst task is {abs(gap):.{digits}f}{judge.unit} {side} {other.label}'s{where}"
            f"{unfinished}. One seed has no interval: more seeds would show whether that is chance."
        )
    seeds = f"{worst.count} seeds"
    if not worst.clear:
        first = (
            f"{ours.label}'s worst task is level with {other.label}'s{where}{unfinished} (difference "
            f"{_points(worst.mean, digits)}, 95 % interval {_range(worst, 1, digits)}, {seeds})"
        )
    else:
        word = "better" if worst.mean > 0 else "worse"
        first = (
            f"{ours.label}'s worst task is {abs(worst.mean):.{digits}f}{judge.unit} {word} than {other.label}'s{where}"
            f"{unfinished} (95 % interval {_range(worst, abs(worst.mean) / worst.mean, digits)}, {seeds})"
        )
    return f"{first}; {_payers(setting, judge, ours, other)}."


def _one_seed(ours: Group, other: Group) -> tuple[RunData, RunData]:
    """A run of each with the same seed, where they share one."""
    theirs = {run.seed: run for run in other.counted}
    shared = next((run for run in ours.counted if run.seed in theirs), None)
    return (ours.counted[0], other.counted[0]) if shared is None else (shared, theirs[shared.seed])


def _by_tasks(setting: SettingStudy, judge: _Judge, ours: Group, other: Group, unfinished: str) -> str:
    """Tasks with different metrics have no worst one: those that are clearly better and clearly worse are counted."""
    gaps = [(task, _difference(ours, other, judge.task(i))) for i, task in enumerate(setting.tasks)]
    known = [(task, gap) for task, gap in gaps if gap is not None]
    head = f"By the tasks' main metrics {ours.label}"
    if not known:
        ahead = 0
        for i in range(len(setting.tasks)):
            mine, theirs = (judge.task(i)(run) for run in _one_seed(ours, other))
            ahead += mine is not None and theirs is not None and mine > theirs
        return (
            f"{head} is ahead of {other.label} in {ahead} of {len(setting.tasks)} tasks{unfinished}. One seed has no "
            "interval: more seeds would show whether that is chance."
        )
    better = [task for task, gap in known if gap.low > 0]
    worse = [task for task, gap in known if gap.high < 0]
    return (
        f"{head} is clearly better than {other.label} in {len(better)} of {len(gaps)} tasks{_named(better)} and "
        f"clearly worse in {len(worse) or 'none'}{_named(worse)}{unfinished} "
        f"(95 % intervals, {known[0][1].count} seeds)."
    )


def _named(tasks: Sequence[str]) -> str:
    more = f" and {len(tasks) - 3} more" if len(tasks) > 3 else ""
    return f" ({', '.join(tasks[:3])}{more})" if tasks else ""


def _payers(setting: SettingStudy, judge: _Judge, ours: Group, other: Group) -> str:
    """The tasks that are clearly worse, the worst first."""
    found = []
    for i, task in enumerate(setting.tasks):
        gap = _difference(ours, other, judge.task(i))
        if gap is not None and gap.high < 0:
            digits = judge.digits if judge.name or gap.mean <= -1 else 2
            found.append((gap.mean, f"{task} pays {-gap.mean:.{digits}f} ({_range(gap, -1, digits)})"))
    if not found:
        return "no task is clearly worse"
    told = [text for _, text in sorted(found)]
    more = f" and {len(told) - 3} more tasks" if len(told) > 3 else ""
    return ", ".join(told[:3]) + more


def _compared(setting: SettingStudy) -> Iterator[tuple[RunValue, str, str, bool, int]]:
    """The values of the tiles: accuracies give way to the main metric, if tasks have one in common."""
    mains = mains_of(setting)
    common = None if mains is None else common_main(mains)
    if mains is not None and common is not None:
        values, worst = [main_value(i, common.name) for i in range(len(mains))], min if common.higher else max
        yield _over(values, fmean), f"Mean {common.name}", "", common.higher, common.digits
        yield _over(values, worst), f"Worst-task {common.name}", "", common.higher, common.digits
    for key, title, unit, higher, digits in METRICS:
        if mains is None or not unit:
            yield final(key), title, unit, higher, digits


def highlights(setting: SettingStudy) -> Iterator[dict[str, Any]]:
    """For every aggregate the method that leads; it is called the best where a paired interval says so."""
    by_label = {group.label: group for group in setting.groups if group.counted}
    for value, title, unit, higher, digits in _compared(setting):
        row = row_of(by_label, list(by_label), ReportMetric(title, value, higher, digits))
        cells = dict(zip(by_label, row, strict=True))
        numbers = {label: cell.number for label, cell in cells.items() if cell.number is not None}
        order = sorted((label for label in numbers if math.isfinite(numbers[label])),
                       key=lambda label: numbers[label], reverse=higher)  # fmt: skip
        if not order:
            continue
        clear, note = _lead(by_label, order, ReportMetric(title, value, higher, digits), unit)
        going = "not finished yet" if by_label[order[0]].unfinished else ""
        yield {
            "title": title,
            "word": "Highest" if higher else "Lowest",
            "label": order[0],
            "value": cells[order[0]].plain + unit,
            "clear": clear,
            "note": "; ".join(filter(None, (note, going))),
        }


def _lead(by_label: dict[str, Group], order: list[str], metric: ReportMetric, unit: str) -> tuple[bool, str]:
    """Whether the first is clearly better than all others, and a note on those for which that cannot be said."""
    if len(order) == 1:
        return False, ""
    value, digits, higher = metric.value, metric.digits, bool(metric.higher)
    gaps = {label: _difference(by_label[order[0]], by_label[label], value) for label in order[1:]}
    better = [label for label, gap in gaps.items() if ahead(gap, not higher)]
    level = [label for label, gap in gaps.items() if gap is not None and not gap.clear]
    unknown = [label for label, gap in gaps.items() if gap is None]
    if better:
        return False, f"behind {_few(better)} on the seeds that they share"
    none = f"no interval against {_few(unknown)}: fewer than two seeds in common"
    if level:
        said = f"level with {_few(level)}: 95 % intervals of the differences contain 0"
        return False, f"{said}; {none}" if unknown else said
    if len(unknown) == len(gaps):
        return False, f"ahead of {order[1]}; one seed in common has no interval"
    gap = gaps[order[1]]
    if unknown or gap is None:
        return False, none
    low, high = sorted((abs(gap.low), abs(gap.high)))
    points = " points" if unit else ""
    return True, f"ahead of {order[1]} by {_number(low, digits)} to {_number(high, digits)}{points}"


def _few(labels: Sequence[str]) -> str:
    return ", ".join(labels[:3]) + (f" and {len(labels) - 3} more" if len(labels) > 3 else "")


def _difference(one: Group, other: Group, value: RunValue) -> Paired | None:
    return paired(by_seed(one, value), by_seed(other, value))


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if value < 1e6 else f"{value:.2e}"


def _points(value: float, digits: int = 1) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def _range(gap: Paired, sign: float = 1.0, digits: int = 1) -> str:
    low, high = sorted((sign * gap.low, sign * gap.high))
    return f"{low:.{digits}f} to {high:.{digits}f}".replace("-", "−")
