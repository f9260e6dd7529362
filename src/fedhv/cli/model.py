"""The commands `export` and `evaluate`: the model of a run afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedhv.cli.options import DataOption, DeviceOption, Json, names, output_console, print_json
from fedhv.support.terminal import print_line

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")]
ProblemOption = Annotated[
    str | None,
    typer.Option(
        help="For a run on your own problem: package.module:name of the problem, or of a function that makes it."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(evaluate)
    app.command()(export)


def evaluate(
    run: RunArgument,
    on: Annotated[
        str | None,
        typer.Option(help="package.module:function that returns the examples [default: the problem's test set]."),
    ] = None,
    problem: ProblemOption = None,
    data: DataOption = None,
    device: DeviceOption = "cpu",
    as_json: Json = False,
) -> None:
    """Evaluate the model of a run on other examples, with the metrics of its problem.

    The function of --on returns inputs and a list of targets, `Examples`, a torch `Dataset`, or a `Benchmark` with test
    examples.
    """
    from fedhv.report.summaries import evaluation_table
    from fedhv.runs.evaluate import evaluate as evaluate_run
    from fedhv.runs.record import read_run

    found = read_run(run)
    result = evaluate_run(found, on, problem=problem, data=data, device=device)
    if as_json:
        print_json(result.as_dict())
        return
    title = f"{found.method} on {found.setting}, seed {found.seed}, evaluated on {on or 'the test examples'}"
    output_console().print(evaluation_table(result, title, found.summary.loss_units))


def export(
    run: RunArgument,
    out: Annotated[Path | None, typer.Option(help="The folder of the files [default: RUN/export].")] = None,
    formats: Annotated[str, typer.Option(help="Comma-separated: pt2 (torch.export), onnx.")] = "pt2,onnx",
    problem: ProblemOption = None,
    prepare: Annotated[
        bool, typer.Option(help="Begin with the problem's preparation of inputs, such as normalisation.")
    ] = True,
    data: DataOption = None,
    as_json: Json = False,
) -> None:
    """Write the model of a run for other programs: torch.export (.pt2) and ONNX.

    The outputs of every file are compared with those of the model in PyTorch.
    """
    from fedhv.runs.export import export as export_run

    made = export_run(run, out, formats=names(formats), problem=problem, prepare=prepare, data=data)
    if as_json:
        files = {form: str(path) for form, path in made.files.items()}
        print_json(
            {"files": files, "differences": dict(made.differences), "inputs": made.inputs, "outputs": made.outputs}
        )
        return
    console = output_console()
    print_line(console, f"Inputs: {', '.join(made.inputs)}. Outputs: {', '.join(made.outputs)}.")
    for form, path in made.files.items():
        print_line(console, f"Wrote {path}; its outputs differ from PyTorch's by at most {made.differences[form]:.1e}")
