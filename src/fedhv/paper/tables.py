"""The tables of means: main, loss-hv, per-task, last10 and ablations, each with the paper's numbers."""

from __future__ import annotations

from collections.abc import Sequence

from fedhv.paper.comparison import Entry, PaperMetric, entries
from fedhv.paper.experiments import ABLATED, EXPERIMENTS, SWEEPS, TWO_TASKS, Selection
from fedhv.paper.found import Found
from fedhv.paper.measures import Value, by_seed, diagnostics, final, final_of_task, last_ten, of_group, spread
from fedhv.paper.output import Records, Sheet
from fedhv.paper.plan import StudyVariant
from fedhv.paper.published import Results, results
from fedhv.paper.render import NONE, Names, rankings_sheet, values_sheet
from fedhv.report.cells import Cell, Column, Table, words
from fedhv.report.groups import method_title

MEAN_ACCURACY = PaperMetric("mean_accuracy", "MeanAcc %", True)
WORST_ACCURACY = PaperMetric("worst_accuracy", "WorstAcc %", True)
MEAN_LOSS = PaperMetric("mean_loss", "MeanLoss", False, 3)
HYPERVOLUME = PaperMetric("hypervolume", "HV", True)
OVER_SEEDS = (
    "Mean ± sample standard deviation over seeds; the difference is ours minus the paper's. Every method has the "
    "learning rates that the paper has for it; they differ between methods (`fedhv show`)."
)

MeasuredValues = Sequence[tuple[PaperMetric, Value]]


def main(found: Sequence[Found], selection: Selection) -> list[Sheet]:
    """Final MeanAcc and WorstAcc."""
    measured = [(metric, final(metric.key)) for metric in (MEAN_ACCURACY, WORST_ACCURACY)]
    of = _by_setting("main", results("main-results"), measured, found, selection)
    return _sheets("main", "Final mean and worst accuracy.", ("Setting", "Method"), of)


def loss_hv(found: Sequence[Found], selection: Selection) -> list[Sheet]:
    """Final MeanLoss and HV."""
    measured = [(metric, final(metric.key)) for metric in (MEAN_LOSS, HYPERVOLUME)]
    of = _by_setting("loss-hv", results("loss-hv-results"), measured, found, selection)
    return _sheets("loss-hv", "Final mean loss and hypervolume against 3·1.", ("Setting", "Method"), of)


def last10(found: Sequence[Found], selection: Selection) -> list[Sheet]:
    """MeanAcc averaged over the last ten evaluations."""
    measured = [(MEAN_ACCURACY, last_ten(MEAN_ACCURACY.key))]
    of = _by_setting("last10", results("last10"), measured, found, selection)
    caption = "Mean accuracy averaged over the last ten evaluations of every run (all, where a run has fewer)."
    return _sheets("last10", caption, ("Setting", "Method"), of)


def per_task(found: Sequence[Found], selection: Selection) -> list[Sheet]:
    """Final accuracy and loss of every task of the two-task settings."""
    of = []
    for contest, competitors in results("per-task-final").items():
        setting, task = contest
        if not selection.has(setting):
            continue
        i = int(task.removeprefix("task ")) - 1
        measured = [
            (PaperMetric("accuracy", "Accuracy %", True), final_of_task(i, "accuracy")),
            (PaperMetric("loss", "Loss", False, 3), final_of_task(i, "loss")),
        ]
        names = [(method, StudyVariant(setting), method) for method in _methods("per-task", selection)]
        of += _entries(contest, names, measured, {contest: competitors}, found)
    caption = f"Final accuracy and loss of every task.{_task_names(found)}"
    return _sheets("per-task", caption, ("Setting", "Task", "Method"), of)


def ablations(found: Sequence[Found], selection: Selection) -> list[Sheet]:
    """MeanAcc and MeanLoss of FedHV with one hyper-parameter varied, and the diagnostics of every variant."""
    published = results("ablation-full")
    measured = [(MEAN_ACCURACY, final(MEAN_ACCURACY.key)), (MEAN_LOSS, final(MEAN_LOSS.key))]
    of: list[Entry] = []
    for sweep in SWEEPS:
        names = [(value, sweep.variant(value), "fedhv") for value in sweep.values]
        of += _entries((sweep.name,), names, measured, published, found)
    caption = (
        f"FedHV on {ABLATED} with one hyper-parameter varied, ranked within each sweep. The setting's own value is "
        "one run in all three sweeps; the paper ran every sweep by itself."
    )
    return [*_sheets("ablations", caption, ("Ablation", "Variant"), of, _sweep_title), _ablation_diagnostics(found)]


def _ablation_diagnostics(found: Sequence[Found]) -> Sheet:
    rows = []
    records: Records = []
    for sweep in SWEEPS:
        section = []
        for value in sweep.values:
            seen = diagnostics(of_group(found, sweep.variant(value), "fedhv"))
            names = (words(sweep.title), words(f"{sweep.symbol} = {value}"))
            if seen is None:
                section.append((*names, NONE, NONE, NONE))
                continue
            share = 100 * seen.floored / seen.out_of
            section.append(
                (
                    *names,
                    Cell(f"{seen.slack:.4f}", value=seen.slack),
                    Cell(f"{seen.floored}/{seen.out_of}", value=seen.floored),
                    Cell(f"{share:.2f} %", value=share),
                )
            )
            records.append({"ablation": sweep.name, "variant": value, **vars(seen)})
        rows.append(tuple(section))
    headings = ("Ablation", "Variant", "Minimum report slack", "Floor activations", "Share")
    columns = tuple(Column(heading, numeric=i > 1) for i, heading in enumerate(headings))
    caption = (
        "The smallest slack of any report, and how often the floor of the slacks was used, out of all tasks, rounds "
        "and runs. The paper reports none but for K = 1, with about 0.2 %."
    )
    return Sheet(
        "ablations-diagnostics", records, Table("ablations-diagnostics", "Diagnostics", caption, columns, tuple(rows))
    )


def _by_setting(
    experiment: str, published: Results, measured: MeasuredValues, found: Sequence[Found], selection: Selection
) -> list[Entry]:
    of = []
    for contest in published:
        if selection.has(contest[0]):
            names = [(method, StudyVariant(contest[0]), method) for method in _methods(experiment, selection)]
            of += _entries(contest, names, measured, published, found)
    return of


def _entries(
    contest: tuple[str, ...],
    names: Sequence[tuple[str, StudyVariant, str]],
    measured: MeasuredValues,
    published: Results,
    found: Sequence[Found],
) -> list[Entry]:
    """The entries of one contest; a competitor is (its name, its study, its method)."""
    of = []
    for metric, value in measured:
        runs = {name: of_group(found, variant, method) for name, variant, method in names}
        ours = {name: spread(own, value) for name, own in runs.items()}
        seeds = {name: by_seed(own, value) for name, own in runs.items()}
        of += entries(contest, metric, ours, {name: published[contest][name][metric.key] for name in ours}, seeds)
    return of


def _methods(experiment: str, selection: Selection) -> list[str]:
    methods = EXPERIMENTS[experiment].methods
    return [method for method in methods if selection.methods is None or method in selection.methods]


def _sheets(
    name: str, caption: str, heads: Sequence[str], of: Sequence[Entry], shown: Names = method_title
) -> list[Sheet]:
    return [
        values_sheet(name, EXPERIMENTS[name].title, f"{caption} {OVER_SEEDS}", heads, of, shown),
        rankings_sheet(f"{name}-rankings", "Rankings", heads, of, shown),
    ]


def _task_names(found: Sequence[Found]) -> str:
    """The names of the numbered tasks of settings that have runs."""
    named = {
        each.run.variant.setting: ", ".join(task.name for task in each.kept.summary.tasks)
        for each in found
        if each.finished and each.run.variant.setting in TWO_TASKS
    }
    return "".join(f" Tasks of {setting}: {tasks}." for setting, tasks in named.items())


def _sweep_title(name: str) -> str:
    return next((f"{sweep.title} ({sweep.symbol})" for sweep in SWEEPS if sweep.name == name), name)
