"""What the command line prints about runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fedhv.statistics import Spread, ranks

COLUMNS = (
    ("mean_accuracy", "MeanAcc ↑", True, 2),
    ("worst_accuracy", "WorstAcc ↑", True, 2),
    ("mean_loss", "MeanLoss ↓", False, 3),
    ("hypervolume", "HV ↑", True, 2),
)


def summary_table(summary: dict[str, Any]) -> Table:
    """One run."""
    title = escape(f"{summary['method']} on {summary['setting']}, seed {summary['seed']}")
    table = Table(box=box.SIMPLE_HEAD, title=title)
    for heading in ("task", "accuracy %", "loss", "weight"):
        table.add_column(heading, justify="left" if heading == "task" else "right")
    for task, weight in zip(summary["tasks"], summary["weights"], strict=True):
        table.add_row(Text(task["name"]), f"{task['accuracy']:.2f}", f"{task['loss']:.4f}", f"{weight:.3f}")
    table.add_section()
    table.add_row("mean", f"{summary['mean_accuracy']:.2f}", f"{summary['mean_loss']:.4f}", "")
    table.add_row("worst", f"{summary['worst_accuracy']:.2f}", "", "")
    sent = summary["communication"]
    table.caption = (
        f"{summary['rounds']} rounds in {summary['seconds']:.1f} s, hypervolume {summary['hypervolume']:.3f}; "
        f"{megabytes(sent['downlink_bytes'])} down, {megabytes(sent['uplink_bytes'])} up"
        + (f", calibration {megabytes(sent['calibration_bytes'])}" if sent["calibration_bytes"] else "")
        + "".join(f"\n{line}" for line in incidents(summary))
    )
    return table


def incidents(summary: dict[str, Any]) -> list[str]:
    """What went wrong in a run that nevertheless ended: replies left out, slacks that were too small."""
    lines = []
    if refused := summary.get("refused"):
        reasons = ", ".join(f"{count} × {reason}" for reason, count in refused["reasons"].items())
        again = f", {refused['repeated_rounds']} rounds repeated" if refused["repeated_rounds"] else ""
        lines.append(f"{refused['replies']} replies left out in {refused['rounds']} rounds ({reasons}){again}")
    if watch := summary.get("watch"):
        raised = [str(each["round"]) for each in watch["raised"]]
        lines.append(
            f"the reference was too low in {watch['rounds']} rounds, first in round {watch['first_round']}, "
            f"lowest slack {watch['lowest_slack']:.4g}" + (f"; raised in round {', '.join(raised)}" if raised else "")
        )
    return lines


def comparison_table(summaries: Sequence[dict[str, Any]], width: int) -> Table:
    """Mean ± sample standard deviation over seeds; the best in bold, the second underlined.

    Tasks have columns of their own where `width` leaves room for them.
    """
    methods = list(dict.fromkeys(summary["method"] for summary in summaries))
    runs = {name: [s for s in summaries if s["method"] == name] for name in methods}
    tasks = [task["name"] for task in summaries[0]["tasks"]]
    tasks = tasks if width >= 80 + 15 * len(tasks) else []
    table = Table(box=box.SIMPLE_HEAD, title=escape(f"{summaries[0]['setting']}, {_seeds(summaries)}"))
    table.add_column("method")
    cells: dict[str, list[Text]] = {name: [Text(name)] for name in methods}

    def column(heading: str, values: dict[str, list[float]], higher: bool | None, digits: int) -> None:
        table.add_column(escape(heading), justify="right", no_wrap=True)
        spreads = {name: Spread.of(values[name]) for name in methods}
        order = {} if higher is None else ranks({name: s.mean for name, s in spreads.items()}, higher)
        for name in methods:
            style = {1: "bold", 2: "underline"}.get(order.get(name, 0), "") if len(methods) > 1 else ""
            cells[name].append(Text(spreads[name].text(digits), style=style))

    for key, heading, higher, digits in COLUMNS:
        column(heading, {name: [s[key] for s in runs[name]] for name in methods}, higher, digits)
    for i, task in enumerate(tasks):
        column(f"{task} %", {n: [s["tasks"][i]["accuracy"] for s in runs[n]] for n in methods}, True, 1)
    column("MB", {n: [_mean(s["communication"]["total_bytes"] / 1e6 for s in runs[n])] for n in methods}, None, 1)
    column("s", {n: [_mean(s["total_seconds"] for s in runs[n])] for n in methods}, None, 1)
    for name in methods:
        table.add_row(*cells[name])
    table.caption = "mean ± sample standard deviation; bold is best, underlined second; MB and s include calibration"
    return table


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)


def megabytes(count: float) -> str:
    """Bytes as 10⁶ bytes."""
    return f"{count / 1e6:.2f} MB"


def _seeds(summaries: Sequence[dict[str, Any]]) -> str:
    seeds = list(dict.fromkeys(summary["seed"] for summary in summaries))
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}, {summaries[0]['rounds']} rounds"
