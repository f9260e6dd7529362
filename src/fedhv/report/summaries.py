"""Tables of run summaries on the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fedhv.protocol.evaluation import ACCURACY, Evaluation, TaskScore
from fedhv.report.ranking import BEST, LEVEL, SHORT_RULE, standing, verdict
from fedhv.report.rates import HEADING as RATES
from fedhv.report.rates import UNKNOWN, pair_text, rates_sentence, untuned
from fedhv.report.relative import SINGLE_TASK, delta_m, mean_ranks, worst_change
from fedhv.report.sizes import megabyte_digits, size_text
from fedhv.runs.defaults import BASELINES
from fedhv.runs.summary import Summary
from fedhv.support.statistics import Spread
from fedhv.support.terminal import longest_word, natural_width

COLUMNS = (
    ("mean_accuracy", "MeanAcc ↑", True, 2),
    ("worst_accuracy", "WorstAcc ↑", True, 2),
    ("mean_loss", "MeanLoss ↓", False, 3),
    ("hypervolume", "HV ↑", True, 2),
)
TASKS = "tasks"
LEFT_OUT_FIRST = ("MB", "s", RATES, "HV", "MeanLoss", TASKS)
"""The columns that a narrow terminal leaves out, in this order. Accuracies are always shown; rates
that are left out are in the caption."""

LEFT_OUT_OF_METRICS = ("MB", "s", RATES, TASKS)
"""The same where tasks are judged by metrics."""

SummaryValue = Callable[[Summary], float | None]
"""A number of a run's summary, if it has it."""


def summary_table(summary: Summary) -> Table:
    """One run."""
    title = escape(f"{summary.method} on {summary.setting}, seed {summary.seed}")
    table = Table(box=box.SIMPLE_HEAD, title=title)
    metrics = list(dict.fromkeys(name for task in summary.tasks for name in task.metrics))
    accuracy = [] if all(task.metrics for task in summary.tasks) else ["accuracy %"]
    arrows = {name: " ↓" if name in task.lower else " ↑" for task in summary.tasks for name in task.metrics}
    for heading in ("task", *(name + arrows[name] for name in metrics), *accuracy, "loss", "weight"):
        table.add_column(escape(heading), justify="left" if heading == "task" else "right")
    for task, weight in zip(summary.tasks, summary.weights, strict=True):
        judged = [f"{task.metrics[name]:.4g}" if name in task.metrics else "" for name in metrics]
        percent = [f"{task.accuracy:.2f}"] if accuracy else []
        table.add_row(Text(task.name), *judged, *percent, f"{task.loss:.4f}", f"{weight:.3f}")
    if summary.by_accuracy:
        table.add_section()
        table.add_row("mean", f"{summary.mean_accuracy:.2f}", f"{summary.mean_loss:.4f}", "")
        table.add_row("worst", f"{summary.worst_accuracy:.2f}", "", "")
    sent = summary.communication
    table.caption = (
        f"{summary.rounds} rounds in {_time(summary)}, {RATES} {pair_text(summary.rates)}, "
        f"hypervolume {summary.hypervolume:.3f}; "
        f"{size_text(sent.downlink_bytes)} down, {size_text(sent.uplink_bytes)} up"
        + (f", calibration {size_text(sent.calibration_bytes)}" if sent.calibration_bytes else "")
        + "".join(f"\n{line}" for line in (*loss_unit_notes([summary]), *summary.incidents, *_scored(summary)))
    )
    return table


def _scored(summary: Summary) -> list[str]:
    """Notes on scores: accuracies of different kinds, if these judge the tasks, and the clients' own examples."""
    mixed = [summary.mixed] if summary.mixed and summary.by_accuracy else []
    return [*mixed, *_at_clients(summary)]


def _at_clients(summary: Summary) -> list[str]:
    """A line per task about the clients' own held-out examples."""
    over = () if summary.selection is None else summary.selection.over_clients
    return [
        f"{each.task}, {each.score} at {each.clients} clients: mean {each.mean:.4g}, "
        f"worst tenth {each.worst_decile:.4g}" + ("" if each.deviation is None else f", deviation {each.deviation:.3g}")
        for each in over
    ]


def loss_unit_notes(summaries: Sequence[Summary]) -> list[str]:
    """A note on the units of losses, if a run has any."""
    scaled = next((summary for summary in summaries if summary.loss_units), None)
    if scaled is None:
        return []
    return [_units(scaled.tasks, scaled.loss_units)]


def _units(tasks: Sequence[TaskScore], units: Sequence[float]) -> str:
    pairs = zip(tasks, units, strict=True)
    return f"losses in units of {', '.join(f'{unit:.3g} ({task.name})' for task, unit in pairs)}"


def _time(summary: Summary) -> str:
    """The seconds of the rounds, and what they leave out or share."""
    apart = f" and {summary.warm_up_seconds:.1f} s of compilation" if summary.warm_up_seconds else ""
    shared = f" (an equal part of the clock of {summary.shared_clock} runs)" if (summary.shared_clock or 1) > 1 else ""
    return f"{summary.seconds:.1f} s{shared}{apart}"


def evaluation_table(evaluation: Evaluation, title: str, units: Sequence[float] = ()) -> Table:
    """A model on some examples: every task's accuracy, loss and metrics; `units` are those of the losses, if any."""
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
    notes = (_units(evaluation.tasks, units) if units else "", evaluation.mixed)
    table.caption = escape("\n".join(filter(None, notes))) or None
    return table


def comparison_table(summaries: Sequence[Summary], width: int, how: str = "") -> Table:
    """Mean ± sample standard deviation over seeds; the best in bold, what is level with the best mean underlined.

    Columns that do not fit into `width` are left out, the least important first. Names of methods are always shown.
    `how` says how the runs were chosen, below the table.
    """
    methods = list(dict.fromkeys(summary.method for summary in summaries))
    runs = {name: [s for s in summaries if s.method == name] for name in methods}
    title = escape(f"{summaries[0].setting}, {_seeds(summaries)}")
    columns, left_out = _columns(runs), []
    table = _compared(title, methods, columns)
    for part in LEFT_OUT_FIRST if _by_accuracy(runs) else LEFT_OUT_OF_METRICS:
        if natural_width(table) <= width:
            break
        if part == TASKS:  # first with less space between columns
            table = _compared(title, methods, columns, padding=0)
            if natural_width(table) <= width:
                break
        if any(column.part == part for column in columns):
            left_out.append(part)
            columns = [column for column in columns if column.part != part]
            table = _compared(title, methods, columns)
    table.caption = escape("\n".join(filter(None, (_caption(runs, columns, left_out, searched=bool(how)), how))))
    return table


@dataclass(frozen=True)
class _Column:
    """Numbers of all methods; columns of one `part` are left out together."""

    part: str
    heading: str
    cells: dict[str, Text]


def _by_accuracy(runs: Mapping[str, Sequence[Summary]]) -> bool:
    """Whether every task is judged by its accuracy, as in the paper."""
    return all(summary.by_accuracy for own in runs.values() for summary in own)


def _columns(runs: Mapping[str, Sequence[Summary]]) -> list[_Column]:
    def column(part: str, heading: str, value: SummaryValue, higher: bool | None, digits: int) -> _Column:
        found = {name: [v for summary in own if (v := value(summary)) is not None] for name, own in runs.items()}
        spreads = {name: Spread.of(values) for name, values in found.items() if values}
        if higher is None:
            return _Column(part, heading, {name: Text(f"{s.mean:.{digits}f}") for name, s in spreads.items()})
        places = standing(_by_seed(runs, value), higher)
        styles = {name: {BEST: "bold", LEVEL: "underline"}.get(places.get(name, 0), "") for name in runs}
        return _Column(part, heading, {name: Text(s.text(digits), styles[name]) for name, s in spreads.items()})

    def main(i: int) -> SummaryValue:
        return lambda summary: summary.tasks[i].main.value

    (first, *_), *_ = runs.values()
    if _by_accuracy(runs):
        scores = [column(heading.split()[0], heading, _metric(key), up, digits) for key, heading, up, digits in COLUMNS]
        scores += [column(TASKS, f"{task.name} %", main(i), True, 1) for i, task in enumerate(first.tasks)]
    else:
        scores = [column(heading.split()[0], heading, value, up, 2) for heading, value, up in _relative(runs)]
        for i, task in enumerate(first.tasks):
            score = task.main
            heading = f"{task.name} {'%' if score.name == ACCURACY else score.name} {'↑' if score.higher else '↓'}"
            scores.append(column(TASKS, heading, main(i), score.higher, score.digits))
    sent = [summary.communication.total_bytes for own in runs.values() for summary in own]
    return [
        _Column(RATES, RATES, {name: Text(rates) for name, rates in _rates(runs).items()}),
        *scores,
        column("MB", "MB", lambda summary: summary.communication.total_bytes / 1e6, None, megabyte_digits(sent, 1)),
        column("s", "s", lambda summary: summary.total_seconds, None, 1),
    ]


def _relative(runs: Mapping[str, Sequence[Summary]]) -> list[tuple[str, SummaryValue, bool]]:
    """The summary of tasks that are not all judged by accuracy: Δm and worst task with a baseline, and mean ranks."""
    alone = {summary.seed: summary for summary in runs.get(SINGLE_TASK, ())}
    ranked: dict[int, float] = {}
    for seed in {summary.seed for own in runs.values() for summary in own}:
        here = {id(s): s for name, own in runs.items() if name not in BASELINES for s in own if s.seed == seed}
        ranked |= mean_ranks(here)

    def change(function: Callable[[Summary, Summary], float | None]) -> SummaryValue:
        return lambda summary: function(summary, alone[summary.seed]) if summary.seed in alone else None

    found: list[tuple[str, SummaryValue, bool]] = []
    if alone:
        found = [("Δm % ↑", change(delta_m), True), ("worst % ↑", change(worst_change), True)]
    methods = sum(name not in BASELINES for name in runs)
    return [*found, *([("rank ↓", lambda summary: ranked.get(id(summary)), False)] if methods > 1 else [])]


def _metric(key: str) -> SummaryValue:
    return lambda summary: float(getattr(summary, key))


def _by_seed(runs: Mapping[str, Sequence[Summary]], value: SummaryValue) -> dict[str, dict[int, float]]:
    """The value of every seed of the methods; baselines are compared with and not ranked."""
    return {
        name: {summary.seed: v for summary in own if (v := value(summary)) is not None}
        for name, own in runs.items()
        if name not in BASELINES
    }


def _rates(runs: Mapping[str, Sequence[Summary]]) -> dict[str, str]:
    return {name: ", ".join(dict.fromkeys(pair_text(s.rates) for s in own)) for name, own in runs.items()}


def _compared(title: str, methods: Sequence[str], columns: Sequence[_Column], padding: int = 1) -> Table:
    """A table whose words and numbers are never broken: what does not fit is wrapped between them."""
    table = Table(box=box.SIMPLE_HEAD, title=title, padding=(0, padding))
    table.add_column("method", no_wrap=True, min_width=max(Text(name).cell_len for name in methods))
    for column in columns:
        least = max(map(longest_word, (column.heading, *(cell.plain for cell in column.cells.values()))))
        table.add_column(escape(column.heading), justify="right", overflow="fold", min_width=least)
    for name in sorted(methods, key=lambda name: name in BASELINES):  # baselines below the methods
        if name in BASELINES and table.rows and not any(row.end_section for row in table.rows):
            table.add_section()
        table.add_row(Text(name), *(column.cells.get(name, Text("–")) for column in columns))
    return table


def _caption(
    runs: Mapping[str, Sequence[Summary]], columns: Sequence[_Column], left_out: Sequence[str], searched: bool
) -> str:
    costs = [column.part for column in columns if column.part in ("MB", "s")]
    repeated = any(len(own) > 1 for own in runs.values())
    rates = _rates(runs)
    same = set(rates.values()) if len(set(rates.values())) == 1 else {UNKNOWN}
    said = [
        "mean ± sample standard deviation" if repeated else "",
        f"{SHORT_RULE}" if len(runs) > 1 and repeated else "",
        f"{RATES} {''.join(same)} for every method" if RATES in left_out and same != {UNKNOWN} else "",
        "Δm and worst: change to single-task training, of the mean and of the worst task; rank: mean over tasks"
        if any(column.part == "Δm" for column in columns)
        else "rank: mean over tasks; --baselines single-task adds the change to single-task training"
        if any(column.part == "rank" for column in columns)
        else "",
        f"{' and '.join(costs)} include{'' if costs[1:] else 's'} calibration" if costs else "",
        *loss_unit_notes([summary for own in runs.values() for summary in own]),
        f"left out because the terminal is narrow: {', '.join(left_out)}" if left_out else "",
    ]
    first = next(iter(runs.values()))[0]
    lacking = [] if searched else untuned(dict(zip(runs, runs, strict=True)), rates, first.setting)
    mixed = first.mixed if first.by_accuracy else ""  # otherwise the table has neither MeanAcc nor WorstAcc
    more = [mixed, _clocks(runs, costs), rates_sentence(rates, lacking), *verdicts(runs)]
    return "\n".join(filter(None, ("; ".join(filter(None, said)), *more)))


def _clocks(runs: Mapping[str, Sequence[Summary]], costs: Sequence[str]) -> str:
    """What the seconds share and leave out, where they are shown."""
    everything = [summary for own in runs.values() for summary in own]
    if "s" not in costs:
        return ""
    said = []
    if any(summary.clock_is_shared for summary in everything):
        said.append("s: shared clock, runs that were computed together have equal parts of one time.")
    if any(summary.warm_up_seconds for summary in everything):
        said.append(f"Compilation, {max(summary.warm_up_seconds for summary in everything):.1f} s a run, is left out.")
    return " ".join(said)


def verdicts(runs: Mapping[str, Sequence[Summary]]) -> list[str]:
    """Who is best in mean and worst accuracy (or Δm and the like), or level with whom; nothing with one seed."""
    said = []
    judged = [(_metric(key), heading, higher) for key, heading, higher, _ in COLUMNS[:2]]
    if not _by_accuracy(runs):
        judged = [(value, heading, higher) for heading, value, higher in _relative(runs)]
    for value, heading, higher in judged:
        values = _by_seed(runs, value)
        if standing(values, higher):
            said.append(f"{heading.split()[0]}: {verdict(values, higher)}.")
    return said


def _seeds(summaries: Sequence[Summary]) -> str:
    seeds = list(dict.fromkeys(summary.seed for summary in summaries))
    rounds = sorted({summary.rounds for summary in summaries})  # several where runs end early
    span = f"{rounds[0]} to {rounds[-1]}" if len(rounds) > 1 else f"{rounds[0]}"
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}, {span} rounds"
