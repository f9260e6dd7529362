"""The tables of `fedhv diagnose`."""

from __future__ import annotations

from rich import box
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fedhv.theory.diagnosis.diagnose import Diagnosis

MOST_MODELS = 9
"""The largest number of models in the table; the file has all."""


def models_table(found: Diagnosis) -> Table:
    """The measured models, one per column."""
    run, models = found.run, list(found.models)
    if len(models) > MOST_MODELS:
        step = (len(models) - 1) / (MOST_MODELS - 1)
        models = [models[round(i * step)] for i in range(MOST_MODELS)]
    title = escape(f"{run.record.method} on {run.setting.name}, seed {run.record.seed}: {run.rounds} rounds")
    table = Table(box=box.SIMPLE_HEAD, title=title)
    table.add_column("after round", no_wrap=True)
    for model in models:
        name = f"{model.round}" if model.source == "replay" else f"{model.round} ({model.source})"
        table.add_column(name, justify="right", no_wrap=True)
    for i, task in enumerate(run.tasks):
        cells = [Text(_number(m.slack[i]), style="" if m.slack[i] > 0 else "bold red") for m in models]
        table.add_row(Text(f"true slack of {task}"), *cells)
    rows = (
        ("slack floor e^−Φ/R_max", "slack_floor"),
        ("Φ", "value"),
        ("‖∇Φ‖ = PFgap", "gradient_norm"),
        ("Pareto residual P", "pareto_residual"),
        ("  bound ‖∇Φ‖/c", "pareto_bound"),
        ("report error ‖F̂ − F‖²", "report_error"),
        ("  bound on its mean", "report_error_bound_orthogonal"),
        ("  without independence", "report_error_bound"),
        ("staleness ‖w − w*‖₁", "staleness"),
        ("  bound, local 2/ρ̃", "staleness_bound"),
        ("  bound, global 2/ρ_clip", "staleness_bound_global"),
    )
    for heading, name in rows:
        table.add_row(heading, *(_number(getattr(m, name)) for m in models))
    known = [row["smallest_estimated_slack"] for row in found.margins]
    floored = sum(1 for row in found.margins if row["floored"])
    table.caption = (
        f"smallest estimated slack {_number(min(known))} in round {known.index(min(known)) + 1}; "
        f"{floored} of {run.rounds} rounds at the floor ρ_clip = {run.floor:g}\n"
    )
    error, bound = found.mean_report_error
    if error is not None:
        table.caption += (
            f"report error, mean over the measured rounds: {_number(error)}, bound on its expectation: {_number(bound)}"
            " (one run may lie above it)"
        )
    return table


def alternatives_table(found: Diagnosis) -> Table:
    """The report-error bound for other cohorts and budgets, relative to the run's own."""
    budgets = list(dict.fromkeys(each.report for each in found.alternatives))
    table = Table(box=box.SIMPLE_HEAD, title="Bound on the report error Ξ for other M and B_rep, relative to this run")
    table.add_column("M")
    for budget in budgets:
        table.add_column(f"B_rep = {budget}", justify="right")
    for cohort in dict.fromkeys(each.cohort for each in found.alternatives):
        row = {each.report: each for each in found.alternatives if each.cohort == cohort}
        cells = [Text(f"{row[b].ratio:.3g}", style="bold" if row[b].current else "") for b in budgets]
        table.add_row(str(cohort), *cells)
    table.caption = f"at the model after round {found.worst}, where the bound is largest; bold is this run"
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
