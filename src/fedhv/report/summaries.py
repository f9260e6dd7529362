"""Tables of run summaries on the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fedhv.protocol.evaluation import Evaluation
from fedhv.runs.summary import Summary
from fedhv.support.statistics import Spread, ranks
from fedhv.support.terminal import natural_width

COLUMNS = (
    ("mean_accuracy", "MeanAcc ↑", True, 2),
    ("worst_accuracy", "WorstAcc ↑", True, 2),
    ("mean_loss", "MeanLoss ↓", False, 3),
    ("hypervolume", "HV ↑", True, 2),
)
TASKS = "tasks"
LEFT_OUT_FIRST = (TASKS, "s", "MB", "HV", "MeanLoss")
"""The columns that a narrow terminal leaves out, in this order. Accuracies are always shown."""

SummaryValue = Callable[[Summary], float]
"""A number of a run's summary."""


def summary_table(summary: Summary) -> Table:
    """One run."""
    title = escape(f"{summary.method} on {summary.setting}, seed {summary.seed}")
    table = Table(box=box.SIMPLE_HEAD, title=title)
    metrics = list(dict.fromkeys(name for task in summary.tasks for name in task.metrics))
    for heading in ("task", "accuracy %", "loss", "weight", *metrics):
        table.add_column(escape(heading), justify="left" if heading == "task" else "right")
    for task, weight in zip(summary.tasks, summary.weights, strict=True):
        judged = [f"{task.metrics[name]:.4g}" if name in task.metrics else "" for name in metrics]
        table.add_row(Text(task.name), f"{task.accuracy:.2f}", f"{task.loss:.4f}", f"{weight:.3f}", *judged)
    table.add_section()
    table.add_row("mean", f"{summary.mean_accuracy:.2f}", f"{summary.mean_loss:.4f}", "")
    table.add_row("worst", f"{summary.worst_accuracy:.2f}", "", "")
    sent = summary.communication
    table.caption = (
        f"{summary.rounds} rounds in {summary.seconds:.1f} s, hypervolume {summary.hypervolume:.3f}; "
        f"{megabytes(sent.downlink_bytes)} down, {megabytes(sent.uplink_bytes)} up"
        + (f", calibration {megabytes(sent.calibration_bytes)}" if sent.calibration_bytes else "")
        + "".join(f"\n{line}" for line in summary.incidents)
    )
    return table


def evaluation_table(evaluation: Evaluation, title: str) -> Table:
    """A model on some examples: every task's accuracy, loss and metrics."""
    table = Table(box=box.SIMPLE_HEAD, title=escape(title))
    metrics = list(dict.fromkeys(name for task in evaluation.tasks for name in task.metrics))
    for heading in ("task", "accuracy %", "loss", *metrics):
        table.add_column(escape(heading), justify="left" if heading == "task" else "right")
    for task in evaluation.tasks:
        judged = [f"{task.metrics[name]:.4g}" if name in task.metrics else "" for name in metrics]
        table.add_row(Text(task.name), f"{task.accuracy:.2f}", f"{task.loss:.4f}", *judged)
    table.add_section()
    table.add_row("mean", f"{evaluation.mean_accuracy:.2f}", f"{evaluation.mean_loss:.4f}")
    table.add_row("worst", f"{evaluation.worst_accuracy:.2f}", "")
    return table


def comparison_table(summaries: Sequence[Summary], width: int) -> Table:
    """Mean ± sample standard deviation over seeds; the best in bold, the second underlined.

    Columns that do not fit into `width` are left out, the least important first. Names of methods are always shown.
    """
    methods = list(dict.fromkeys(summary.method for summary in summaries))
    runs = {name: [s for s in summaries if s.method == name] for name in methods}
    title = escape(f"{summaries[0].setting}, {_seeds(summaries)}")
    columns, left_out = _columns(runs), []
    table = _compared(title, methods, columns)
    for part in LEFT_OUT_FIRST:
        if natural_width(table) <= width:
            break
        if any(column.part == part for column in columns):
            left_out.append(part)
            columns = [column for column in columns if column.part != part]
            table = _compared(title, methods, columns)
    table.caption = _caption(runs, columns, left_out)
    return table


@dataclass(frozen=True)
class _Column:
    """One number per method; columns of one `part` are left out together."""

    part: str
    heading: str
    cells: dict[str, Text]


def _columns(runs: Mapping[str, Sequence[Summary]]) -> list[_Column]:
    def column(part: str, heading: str, value: SummaryValue, higher: bool | None, digits: int) -> _Column:
        spreads = {name: Spread.of([value(summary) for summary in own]) for name, own in runs.items()}
        if higher is None:
            return _Column(part, heading, {name: Text(f"{s.mean:.{digits}f}") for name, s in spreads.items()})
        order = ranks({name: s.mean for name, s in spreads.items()}, higher) if len(runs) > 1 else {}
        styles = {name: {1: "bold", 2: "underline"}.get(order.get(name, 0), "") for name in runs}
        return _Column(part, heading, {name: Text(s.text(digits), styles[name]) for name, s in spreads.items()})

    def accuracy(i: int) -> SummaryValue:
        return lambda summary: summary.tasks[i].accuracy

    def metric(key: str) -> SummaryValue:
        return lambda summary: float(getattr(summary, key))

    (first, *_), *_ = runs.values()
    return [
        *(column(heading.split()[0], heading, metric(key), higher, digits) for key, heading, higher, digits in COLUMNS),
        *(column(TASKS, f"{task.name} %", accuracy(i), True, 1) for i, task in enumerate(first.tasks)),
        column("MB", "MB", lambda summary: summary.communication.total_bytes / 1e6, None, 1),
        column("s", "s", lambda summary: summary.total_seconds, None, 1),
    ]


def _compared(title: str, methods: Sequence[str], columns: Sequence[_Column]) -> Table:
    """Names keep their width. Numbers that do not fit are folded, not cut."""
    table = Table(box=box.SIMPLE_HEAD, title=title)
    table.add_column("method", no_wrap=True, min_width=max(Text(name).cell_len for name in methods))
    for column in columns:
        table.add_column(escape(column.heading), justify="right", overflow="fold")
    for name in methods:
        table.add_row(Text(name), *(column.cells[name] for column in columns))
    return table


def _caption(runs: Mapping[str, Sequence[Summary]], columns: Sequence[_Column], left_out: Sequence[str]) -> str:
    costs = [column.part for column in columns if column.part in ("MB", "s")]
    said = [
        "mean ± sample standard deviation" if any(len(own) > 1 for own in runs.values()) else "",
        "bold is best, underlined second" if len(runs) > 1 else "",
        f"{' and '.join(costs)} include{'' if costs[1:] else 's'} calibration" if costs else "",
        f"left out because the terminal is narrow: {', '.join(left_out)}" if left_out else "",
    ]
    return "; ".join(filter(None, said))


def megabytes(count: float) -> str:
    """Bytes in MB (10⁶ bytes)."""
    return f"{count / 1e6:.2f} MB"


def _seeds(summaries: Sequence[Summary]) -> str:
    seeds = list(dict.fromkeys(summary.seed for summary in summaries))
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}, {summaries[0].rounds} rounds"
