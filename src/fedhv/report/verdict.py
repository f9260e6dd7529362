"""What a comparison came to, in sentences: from paired intervals over seeds, without a crown for a tie."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from fedhv.report.comparison import ReportMetric, RunValue, by_seed, final, row_of
from fedhv.report.groups import ORDER, Group, SettingStudy
from fedhv.report.ranking import paired
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


def _sentence(setting: SettingStudy, ours: Group, other: Group) -> str:
    worst = _difference(ours, other, final("worst_accuracy"))
    unfinished = " so far" if ours.unfinished or other.unfinished else ""
    if worst is None:
        found = [group.counted[0].evaluations.values("worst_accuracy")[-1] for group in (ours, other)]
        gap = float(found[0] - found[1])
        side = "above" if gap >= 0 else "below"
        return (
            f"{ours.label}'s worst task is {abs(gap):.1f} points {side} {other.label}'s{unfinished}. One seed has no "
            "interval: more seeds would show whether that is chance."
        )
    seeds = f"{worst.count} seeds"
    if not worst.clear:
        first = (
            f"{ours.label}'s worst task is level with {other.label}'s{unfinished} (difference {_points(worst.mean)}, "
            f"95 % interval {_range(worst)}, {seeds})"
        )
    else:
        word = "better" if worst.mean > 0 else "worse"
        first = (
            f"{ours.label}'s worst task is {abs(worst.mean):.1f} points {word} than {other.label}'s{unfinished} "
            f"({_range(worst, abs(worst.mean) / worst.mean)}, {seeds})"
        )
    return f"{first}; {_payers(setting, ours, other)}."


def _payers(setting: SettingStudy, ours: Group, other: Group) -> str:
    """The tasks that are clearly worse, the worst first."""
    found = []
    for i, task in enumerate(setting.tasks):
        gap = _difference(ours, other, final(f"accuracy.{i}"))
        if gap is not None and gap.high < 0:
            digits = 1 if gap.mean <= -1 else 2
            found.append((gap.mean, f"{task} pays {-gap.mean:.{digits}f} ({_range(gap, -1, digits)})"))
    if not found:
        return "no task is clearly worse"
    told = [text for _, text in sorted(found)]
    more = f" and {len(told) - 3} more tasks" if len(told) > 3 else ""
    return ", ".join(told[:3]) + more


def highlights(setting: SettingStudy) -> Iterator[dict[str, Any]]:
    """For every aggregate the method that leads; it is called the best where a paired interval says so."""
    by_label = {group.label: group for group in setting.groups if group.counted}
    for key, title, unit, higher, digits in METRICS:
        row = row_of(by_label, list(by_label), ReportMetric(title, final(key), higher, digits))
        cells = dict(zip(by_label, row, strict=True))
        numbers = {label: cell.number for label, cell in cells.items() if cell.number is not None}
        order = sorted((label for label in numbers if math.isfinite(numbers[label])),
                       key=lambda label: numbers[label], reverse=higher)  # fmt: skip
        if not order:
            continue
        clear, note = _lead(by_label, order, key, digits, unit)
        going = "not finished yet" if by_label[order[0]].unfinished else ""
        yield {
            "title": title,
            "word": "Highest" if higher else "Lowest",
            "label": order[0],
            "value": cells[order[0]].plain + unit,
            "clear": clear,
            "note": "; ".join(filter(None, (note, going))),
        }


def _lead(by_label: dict[str, Group], order: list[str], key: str, digits: int, unit: str) -> tuple[bool, str]:
    """Whether the first is told apart from all others, and a note on the nearest that it is not told apart from."""
    if len(order) == 1:
        return False, ""
    first, level = by_label[order[0]], []
    for label in order[1:]:
        gap = _difference(first, by_label[label], final(key))
        if gap is None:
            return False, f"ahead of {order[1]}; one seed in common has no interval"
        if not gap.clear:
            level.append(label)
    if level:
        named = ", ".join(level[:3]) + (f" and {len(level) - 3} more" if len(level) > 3 else "")
        return False, f"level with {named}: 95 % intervals of the differences contain 0"
    gap = _difference(first, by_label[order[1]], final(key))
    assert gap is not None
    low, high = sorted((abs(gap.low), abs(gap.high)))
    points = " points" if unit else ""
    return True, f"ahead of {order[1]} by {_number(low, digits)} to {_number(high, digits)}{points}"


def _difference(one: Group, other: Group, value: RunValue) -> Paired | None:
    return paired(by_seed(one, value), by_seed(other, value))


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if value < 1e6 else f"{value:.2e}"


def _points(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def _range(gap: Paired, sign: float = 1.0, digits: int = 1) -> str:
    low, high = sorted((sign * gap.low, sign * gap.high))
    return f"{low:.{digits}f} to {high:.{digits}f}".replace("-", "−")
