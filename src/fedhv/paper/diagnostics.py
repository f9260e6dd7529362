"""References compared with the paper's, the smallest slacks, FedHV's weights, and the methods' costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedhv.paper import references
from fedhv.paper.comparison import Entry, PaperMetric, entries
from fedhv.paper.experiments import EXPERIMENTS, Selection, family
from fedhv.paper.found import Found
from fedhv.paper.measures import by_seed, diagnostics, megabytes, of_group, seconds, spread, weights
from fedhv.paper.output import Records, Sheet
from fedhv.paper.plan import SETTINGS, StudyVariant
from fedhv.paper.published import Printed, efficiency, reference_diagnostics, training_references
from fedhv.paper.render import NONE, paper_cell, rankings_sheet, values_sheet
from fedhv.report.cells import Cell, Column, Table, signed, words
from fedhv.support.statistics import Spread

SHARED = (
    "Runs that were computed as one stack have equal shares of its time, compilation included. These seconds do "
    "not compare methods and are not ranked. "
)


def reference_sheets(found: Sequence[Found], selection: Selection, out: Path) -> list[Sheet]:
    """Sheets of calibrated references, diagnostics of FedHV's runs, and their weights."""
    return [_references(selection, out), _diagnostics(found, selection), *weight_sheets(found, selection)]


def _references(selection: Selection, out: Path) -> Sheet:
    sections, origins = [], []
    records: Records = []
    for paper in training_references():
        if not any(selection.has(setting) for setting in paper.settings):
            continue
        ours = references.existing(out, family(paper.settings[0]))
        if ours is not None and len(ours.values) != len(paper.values):
            ours = None
        if ours is not None:
            made, several = ours.provenance, len(ours.provenance.seeds) > 1
            seeds = f"seed{'s' * several} {', '.join(map(str, made.seeds))}"
            origins.append(
                f"{paper.family}: {made.rounds} rounds under {made.setting}, {seeds}, margin {made.margin:g}"
            )
        rows = []
        for i, printed in enumerate(paper.values):
            task = ours.tasks[i] if ours is not None and ours.tasks else f"task {i + 1}"
            value = ours.values[i] if ours is not None else None
            relative = None if value is None else 100 * (value / printed.mean - 1)
            mine = NONE if value is None else Cell(f"{value:.6f}", value=value)
            rows.append((words(paper.family), words(task), mine, paper_cell(printed), signed(relative, 2, " %")))
            records.append(
                {
                    "family": paper.family,
                    "task": task,
                    "ours": value,
                    "paper": printed.mean,
                    "relative_difference_percent": relative,
                }
            )
        sections.append(tuple(rows))
    columns = (
        Column("Family", numeric=False),
        Column("Task", numeric=False),
        Column("Ours"),
        Column("Paper"),
        Column("Relative difference"),
    )
    caption = "Training references of FedHV, calibrated as in the paper." + "".join(f" {o}." for o in origins)
    table = Table("references", "Training references", caption, columns, tuple(sections))
    return Sheet("references", records, table)


def _diagnostics(found: Sequence[Found], selection: Selection) -> Sheet:
    rows = []
    records: Records = []
    for setting, paper in reference_diagnostics().items():
        if not selection.has(setting):
            continue
        ours = diagnostics(of_group(found, StudyVariant(setting), "fedhv"))
        gap = None if ours is None else ours.slack - paper.slack.mean
        rows.append(
            (
                words(setting),
                NONE if ours is None else Cell(f"{ours.slack:.4f}", value=ours.slack),
                paper_cell(paper.slack),
                signed(gap, 4),
                NONE if ours is None else Cell(f"{ours.floored}/{ours.out_of}", value=ours.floored),
                Cell(f"{paper.floored}/{paper.out_of}", value=paper.floored),
            )
        )
        records.append(
            {
                "setting": setting,
                "ours_minimum_report_slack": ours.slack if ours else None,
                "paper_minimum_report_slack": paper.slack.mean,
                "difference": gap,
                "ours_floor_activations": ours.floored if ours else None,
                "ours_out_of": ours.out_of if ours else None,
                "ours_runs": ours.runs if ours else 0,
                "paper_floor_activations": paper.floored,
                "paper_out_of": paper.out_of,
            }
        )
    columns = (
        Column("Setting", numeric=False),
        Column("Ours", "Minimum report slack"),
        Column("Paper", "Minimum report slack"),
        Column("Difference", "Minimum report slack"),
        Column("Ours", "Floor activations"),
        Column("Paper", "Floor activations"),
    )
    caption = (
        "The smallest slack of any report in any round of any run, and how often the floor of the slacks was used, "
        "out of all tasks, rounds and runs: a practical diagnostic, not the condition of the theory."
    )
    table = Table("reference-diagnostics", "Reference diagnostics", caption, columns, (tuple(rows),))
    return Sheet("reference-diagnostics", records, table)


def weight_sheets(found: Sequence[Found], selection: Selection) -> list[Sheet]:
    """FedHV's weights round by round, a file for every setting that has runs."""
    sheets = []
    for setting in SETTINGS:
        runs = of_group(found, StudyVariant(setting), "fedhv") if selection.has(setting) else []
        if runs:
            sheets.append(Sheet(f"weights-{setting}", weights(runs)))
    return sheets


def efficiency_sheets(found: Sequence[Found], selection: Selection) -> list[Sheet]:
    """Wall-clock time and megabytes of every method."""
    paper = efficiency()
    variant = StudyVariant(paper.setting)
    methods = [m for m in EXPERIMENTS["efficiency"].methods if selection.methods is None or m in selection.methods]
    runs = {method: of_group(found, variant, method) for method in methods}
    counted = min([paper.rounds, *(len(run.kept.rounds) for group in runs.values() for run in group)])
    shared = any(run.kept.summary.clock_is_shared for group in runs.values() for run in group)
    faster = None if shared else False
    measured = (
        (PaperMetric("seconds", "Time s", faster), seconds(counted)),
        (PaperMetric("downlink_megabytes", "Down MB", False), megabytes(lambda sent: sent.down)),
        (PaperMetric("uplink_megabytes", "Up MB", False), megabytes(lambda sent: sent.up)),
        (PaperMetric("total_megabytes", "Both MB", False, 1), megabytes(lambda sent: sent.total)),
    )
    of: list[Entry] = []
    for metric, value in measured:
        ours = {method: spread(runs[method], value) for method in methods}
        printed = {method: paper.methods[method].get(metric.key) for method in methods}
        varies = metric.key == "seconds" and not shared
        seeds = {method: by_seed(runs[method], value) for method in methods}
        of += entries((paper.setting,), metric, ours if varies else _exact(ours), printed, seeds)
        if metric.key == "seconds":
            of += _relative(paper.setting, ours, printed, faster)
    caption = (
        f"Wall-clock seconds of {counted} rounds (the paper's are of {paper.rounds}), with FedHV's calibration where "
        f"it had one, and as a multiple of FedHV's. {SHARED if shared else ''}Megabytes (10⁶ bytes) are of "
        "one round and all its clients together, as the paper's are. Ours count every message: also the sum of "
        "compressed gradients that FedCMOO sends back to the clients, which the paper's downlink leaves out."
    )
    heads = ("Setting", "Method")
    return [
        values_sheet("efficiency", EXPERIMENTS["efficiency"].title, caption, heads, of),
        rankings_sheet("efficiency-rankings", "Rankings", heads, of),
    ]


def _exact(ours: dict[str, Spread | None]) -> dict[str, Spread | None]:
    """Leave out deviations of zero: bytes, and equal shares of a time, do not vary between seeds."""
    return {
        name: s and Spread(s.mean, None if not s.deviation or s.deviation < 1e-3 * s.mean else s.deviation, s.count)
        for name, s in ours.items()
    }


def _relative(
    setting: str, ours: dict[str, Spread | None], paper: dict[str, Printed | None], faster: bool | None
) -> list[Entry]:
    """Time as a multiple of FedHV's, which is comparable between machines."""
    our_base, paper_base = ours.get("fedhv"), paper.get("fedhv")
    if our_base is None or paper_base is None:
        return []
    mine = {name: s and Spread(s.mean / our_base.mean, None, s.count) for name, s in ours.items()}
    theirs = {name: p and Printed(p.mean / paper_base.mean, None, 2, p.mark) for name, p in paper.items()}
    return entries((setting,), PaperMetric("relative_time", "Time / FedHV", faster), mine, theirs)
