"""The commands `diagnose` and `theory`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from fedhv.cli.options import DataOption, DeviceOption, InitOption, Json, names, output_console, print_json
from fedhv.support.bars import counts
from fedhv.support.errors import InputError
from fedhv.support.jsonfile import write_object
from fedhv.support.terminal import print_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Out = Annotated[Path, typer.Option(help="The folder for tables (CSV) and figures (PNG, PDF).")]
Figures = Annotated[bool, typer.Option(help="Draw figures.")]
Seed = Annotated[int, typer.Option(min=0, help="The seed of all random draws.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
TableRows = Sequence[dict[str, Any]]
ENOUGH = 30
"""The mean of fewer runs is too inaccurate for a comparison with a bound on an expectation."""

laboratory = typer.Typer(
    name="theory",
    help="Experiments on the paper's theory, on federations whose constants are known exactly.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(diagnose)
    app.add_typer(laboratory)


def diagnose(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a FedHV run, finished or not.")],
    checkpoints: Annotated[
        str, typer.Option(help="Which stored models to measure: start, previous, newest.")
    ] = "start,previous,newest",
    replay: Annotated[
        bool, typer.Option("--replay", help="Compute the run again and measure its models; costs as much as the run.")
    ] = False,
    every: Annotated[
        int | None, typer.Option(min=1, help="With --replay: rounds between measurements [default: 20 models].")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of tables and figures [default: RUN/diagnosis].")] = None,
    data: DataOption = None,
    init: InitOption = None,
    device: DeviceOption = "auto",
    figures: Figures = True,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Apply the theory to a run: safety margins, report error, staleness, stationarity, other cohorts and budgets.

    Losses and gradients are those of all examples of all clients.
    """
    from fedhv.theory.diagnosis import diagnose as find
    from fedhv.theory.diagnosis.figures import margins_figure, theory_figure
    from fedhv.theory.diagnosis.tables import alternatives_table, models_table
    from fedhv.theory.diagnosis.verdict import verdict
    from fedhv.theory.output import folder_for, write_table

    if every is not None and not replay:
        raise InputError("--every needs --replay: a run's folder has only its newest two checkpoints.")
    with counts(quiet or as_json) as bar:
        advance = partial(bar.update, "replaying" if replay else "measuring")
        found = find(
            run,
            checkpoints=names(checkpoints),
            replayed=replay,
            every=every,
            data=data,
            init=init,
            device=device,
            progress=advance,
        )
    target = folder_for(out or run / "diagnosis")
    write_table(target / "rounds.csv", found.margins)
    write_table(target / "models.csv", found.model_rows())
    write_table(target / "alternatives.csv", [vars(each) for each in found.alternatives])
    write_object(target / "diagnosis.json", found.as_dict())
    drawn = {"margins": lambda: margins_figure(found), "theory": lambda: theory_figure(found)}
    notes = [*found.notes, *(_draw(target, drawn) if figures else [])]
    if as_json:
        print_json(found.as_dict())
    elif not quiet:
        console = output_console()
        for line in verdict(found):
            console.print(line, markup=False, highlight=False)
        console.print(models_table(found))
        console.print(alternatives_table(found))
        for note in notes:
            print_line(console, note)
        print_line(console, f"Tables and figures are in {target}")


@laboratory.command()
def rate(
    out: Out = Path("theory/rate"),
    longest: Annotated[int, typer.Option(min=256, help="Horizon of the noiseless curve.")] = 2**19,
    noisy_longest: Annotated[int, typer.Option(min=256, help="Horizon of the others.")] = 2**14,
    runs: Annotated[int, typer.Option(min=2, help="The runs of every random curve.")] = 16,
    seed: Seed = 0,
    figures: Figures = True,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Rate: the average squared gradient over horizons, with the prescribed schedule."""
    from fedhv.paper.laboratory.figures import rate_figure
    from fedhv.paper.laboratory.rate import rate_experiment

    curves = rate_experiment(longest=longest, noisy_longest=noisy_longest, runs=runs, seed=seed)
    rows = [row for curve in curves for row in curve.rows()]
    table = Table(box=box.SIMPLE_HEAD, title="Average squared gradient under steps η₀/√T")
    for heading in ("curve", "Ξ measured", "longest T", "at longest T", "bound", "slope of the last three"):
        table.add_column(heading, justify="left" if heading == "curve" else "right")
    for curve in curves:
        slope, error = curve.slope
        bound = curve.bounds[0]
        table.add_row(
            curve.name, f"{curve.report_error:.3g}", str(curve.horizons[0]), f"{curve.height:.3g}",
            "–" if bound is None else f"{bound:.3g}", f"{slope:.3f} ± {error:.3f}",
        )  # fmt: skip
    table.caption = "a bound is shown if the steps satisfy the theorem's conditions"
    _finish(out, {"rate": rows}, {"rate": lambda: rate_figure(curves)} if figures else {}, table, quiet, as_json)


@laboratory.command()
def certificate(
    out: Out = Path("theory/certificate"),
    runs: Annotated[int, typer.Option(min=1, help="The runs of every case.")] = 1000,
    delta: Annotated[float, typer.Option(help="The probability that a certificate may be wrong.")] = 0.05,
    seed: Seed = 0,
    figures: Figures = True,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Safety: runs compared with the reference-safety certificate."""
    import numpy as np

    from fedhv.paper.laboratory.figures import certificate_figure
    from fedhv.paper.laboratory.safety import certified_horizons, safety_cases, safety_experiment

    found = list(safety_experiment(runs=runs, delta=delta, seed=seed))
    cases = {case.name: case for case in safety_cases()}
    horizons = [
        row
        for name in ("two tasks, small steps", "close reference", "four tasks")
        for row in certified_horizons(cases[name], np.logspace(-6, -3, 13), delta)
    ]
    table = Table(box=box.SIMPLE_HEAD, title=f"Reference-safety certificates, δ = {delta:g}")
    for heading in ("case", "certified", "T", "ρ", "runs", "slack below ρ", "loss above r", "smallest slack"):
        table.add_column(heading, justify="left" if heading == "case" else "right")
    for s in found:
        c = s.certificate
        table.add_row(
            s.case.name, "yes" if c.certified else "no", str(c.horizon), f"{c.margin:.3g}", str(len(s.smallest)),
            str(s.violations), str(s.unsafe), f"{s.smallest.min():.3g}",
        )  # fmt: skip
    tables = {"certificate": [s.row() for s in found], "horizons": horizons}
    drawn = {"certificate": lambda: certificate_figure(found, horizons)} if figures else {}
    _finish(out, tables, drawn, table, quiet, as_json)


@laboratory.command()
def terms(
    out: Out = Path("theory/terms"),
    horizon: Annotated[int, typer.Option(min=1, help="T of the runs in closed form.")] = 256,
    runs: Annotated[int, typer.Option(min=1, help="The runs of every case in closed form.")] = 400,
    engine_horizon: Annotated[int, typer.Option(min=1, help="T of the runs through the engine.")] = 24,
    engine_runs: Annotated[int, typer.Option(min=0, help="The runs of every case through the engine.")] = 1,
    seed: Seed = 0,
    figures: Figures = True,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Terms: the theorem's seven terms compared with measured runs, over many settings."""
    from fedhv.paper.laboratory.figures import terms_figure
    from fedhv.paper.laboratory.terms import cases, terms_by_horizon, terms_experiment

    found = list(
        terms_experiment(horizon=horizon, runs=runs, engine_horizon=engine_horizon, engine_runs=engine_runs, seed=seed)
    )
    over = terms_by_horizon(cases()[3], [2**k for k in range(6, 27, 2)])
    table = Table(box=box.SIMPLE_HEAD, title="Average squared gradient and its bound, prescribed steps")
    for heading in ("case", "through", "T", "runs", "measured", "bound", "Ξ measured", "Ξ bound"):
        table.add_column(heading, justify="left" if heading in ("case", "through") else "right")
    for m in found:
        row = m.row()
        table.add_row(
            m.case.name, m.through, str(m.horizon), str(row["runs"]), f"{m.observed.mean:.4g}", f"{m.terms.total:.4g}",
            f"{m.observed.report_error:.3g}" if row["runs"] >= ENOUGH else "–",
            f"{row['report_error_bound_orthogonal']:.3g}",
        )  # fmt: skip
    table.caption = "Ξ: mean over rounds and runs, if there are many runs; its bound is that of independent clients"
    tables = {"terms": [m.row() for m in found], "horizons": over}
    _finish(out, tables, {"terms": lambda: terms_figure(found, over)} if figures else {}, table, quiet, as_json)


def _finish(
    out: Path,
    tables: Mapping[str, TableRows],
    figures: dict[str, Callable[[], Figure]],
    printed: Table,
    quiet: bool,
    as_json: bool,
) -> None:
    from fedhv.theory.output import folder_for, write_table

    target = folder_for(out)
    for name, rows in tables.items():
        write_table(target / f"{name}.csv", rows)
    notes = _draw(target, figures)
    if as_json:
        print_json(tables)
    elif not quiet:
        console = output_console()
        console.print(printed)
        for note in [*notes, f"Tables and figures are in {target}"]:
            print_line(console, note)


def _draw(target: Path, figures: dict[str, Callable[[], Figure]]) -> list[str]:
    """Draw figures. Without matplotlib there are only tables, with a note."""
    from fedhv.theory.output import write_figure

    for name, make in figures.items():
        try:
            write_figure(target / name, make)
        except InputError as error:
            return [str(error)]
    return []
