"""The commands `flower up`, `status`, `stop`, `back`, `spent`, `superexec` and `certificates`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedhv.cli.options import (
    DataOption,
    FreshOption,
    Json,
    MethodOption,
    QuietOption,
    ReferenceOption,
    ResumeOption,
    RoundsOption,
    SeedOption,
    SetOption,
    SettingArgument,
    output_console,
    print_json,
    same_command,
)
from fedhv.support.errors import InputError, Interrupted
from fedhv.support.terminal import print_line

FederationFolder = Annotated[Path, typer.Argument(help="The folder of a federation's run.")]

flower = typer.Typer(name="flower", help="Federations of real processes, on Flower.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.add_typer(flower)


@flower.command()
def up(
    setting: SettingArgument,
    nodes: Annotated[int, typer.Option(min=1, help="SuperNodes, one for each client of the federation.")] = 3,
    tls: Annotated[bool, typer.Option("--tls", help="Use encryption, and accept registered node keys only.")] = False,
    method: MethodOption = "fedhv",
    seed: SeedOption = 0,
    rounds: RoundsOption = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder [default: runs/SETTING-flower/METHOD-seedSEED].")
    ] = None,
    reference: ReferenceOption = None,
    set_: SetOption = None,
    resume: ResumeOption = False,
    fresh: FreshOption = False,
    reply_seconds: Annotated[float, typer.Option(min=0.1, help="The time limit for a node's reply.")] = 120.0,
    node_seconds: Annotated[float, typer.Option(min=0.1, help="The time limit for nodes to become available.")] = 180.0,
    report_clip: Annotated[
        float | None, typer.Option(min=0, help="Privacy: clip the reported losses on the nodes.")
    ] = None,
    report_noise: Annotated[
        float | None, typer.Option(min=0, help="Privacy: noise multiplier of the reports; needs --report-clip.")
    ] = None,
    device: Annotated[str, typer.Option(help="The device of the nodes: cpu, cuda or auto.")] = "cpu",
    data: DataOption = None,
    quiet: QuietOption = False,
    as_json: Json = False,
) -> None:
    """Run a setting with a SuperLink and SuperNodes on this machine, and stop them at the end.

    The run folder is the same as that of `fedhv run`. All processes listen on 127.0.0.1 only.
    """
    # Flower is an extra: it is imported where it is needed.
    from fedhv.flower.patience import Patience
    from fedhv.flower.up import Order
    from fedhv.flower.up import up as run_on_flower
    from fedhv.protocol.report_privacy import ReportPrivacy
    from fedhv.report.progress import observer, warn_without_run
    from fedhv.report.summaries import summary_table

    if report_noise and not report_clip:
        raise InputError("`--report-noise` needs `--report-clip`: noise protects only bounded reports.")
    order = Order(
        setting=setting,
        method=method,
        nodes=nodes,
        out=out or Path(),
        seed=seed,
        reference=reference,
        override=tuple(set_ or ()),
        rounds=rounds,
        data=data,
        device=device,
        tls=tls,
        resume=resume,
        fresh=fresh,
        patience=Patience(reply=reply_seconds, nodes=node_seconds),
        reports=ReportPrivacy(report_clip, report_noise or 0.0) if report_clip else None,
    )
    resolved = order.resolved()
    label = resolved.method(method).label
    folder = out or Path("runs") / f"{resolved.name}-flower" / f"{label}-seed{seed}"
    order = replace(order, out=folder)
    watch = warn_without_run(observer(Console(stderr=True), quiet or as_json), folder, resume and not fresh)
    try:
        result = run_on_flower(order, watch)
    except Interrupted as stop:
        raise Interrupted(f"{stop} Continue with: {same_command('--resume')}") from None
    finally:
        watch.stop()
    if as_json:
        print_json(result.summary.as_dict())
    elif not quiet:
        console = output_console(140)
        console.print(summary_table(result.summary))
        print_line(console, f"The run is in {folder}")


@flower.command()
def status(
    folder: FederationFolder,
    as_json: Json = False,
) -> None:
    """Show the progress of a federation's run and the nodes of its last round."""
    from fedhv.flower.status import status as status_of

    found = status_of(folder)
    if as_json:
        print_json(found.as_dict())
        return
    for line in found.lines():
        print_line(output_console(140), line)


@flower.command()
def stop(folder: FederationFolder) -> None:
    """End a federation's run after the current round. The same run can be continued later."""
    from fedhv.flower.status import stop as stop_run

    stop_run(folder)
    print_line(output_console(140), f"The run in {folder} ends after the current round.")


@flower.command()
def back(
    folder: FederationFolder,
    resume_from: Annotated[int, typer.Option("--resume-from", min=1, help="The round after which the run continues.")],
) -> None:
    """Go back to a round, or the last before it whose checkpoint was kept; the same run, started again, continues."""
    from fedhv.runs.back import back_message, take_back

    print_line(output_console(140), back_message(folder, resume_from, take_back(folder, resume_from)))


@flower.command()
def spent(policy: Annotated[Path, typer.Argument(help="A node's policy file.")], as_json: Json = False) -> None:
    """Show what a node has spent of its privacy budget, over all runs, for the answers that it has sent."""
    from fedhv.flower.policy import Policy

    found = Policy.read(policy)
    if found.budget is None:
        raise InputError(f"{policy} should have a budget to spend. Found no [budget].")
    epsilon, answers = found.spent()
    if as_json:
        about = {"epsilon": epsilon, "delta": found.budget.delta, "budget": found.budget.epsilon, "answers": answers}
        print_json(about)
        return
    print_line(
        output_console(140),
        f"ε = {epsilon:.4g} of {found.budget.epsilon:g} at δ = {found.budget.delta:g}, for {answers} answers.",
    )


@flower.command()
def superexec(
    addresses: Annotated[
        list[str], typer.Argument(help="The address of a SuperNode's Runtime API (its --host and --port).")
    ],
) -> None:
    """Start the apps of SuperNodes that run with `--isolation process`.

    It imports torch and FedHV once and forks a process for every message. Flower's own SuperExec starts a new Python
    every time, which takes seconds. It runs until it is ended.
    """
    from fedhv.flower.superexec import serve

    serve(addresses)


@flower.command()
def certificates(
    folder: Annotated[Path, typer.Argument(help="A new folder for certificates and keys.")],
    host: Annotated[list[str] | None, typer.Option(help="A name or address of the SuperLink. May be repeated.")] = None,
    nodes: Annotated[int, typer.Option(min=0, help="The number of node keys.")] = 3,
    days: Annotated[int, typer.Option(min=1, help="The validity of the certificates in days.")] = 365,
    renew: Annotated[
        bool, typer.Option("--renew", help="Replace the server's key and certificate in an existing folder.")
    ] = False,
) -> None:
    """Create a certificate authority, a server certificate and node keys, for tests."""
    from fedhv.flower.certificates import make_certificates, renew_server

    if renew:
        renewed = renew_server(folder, host or ["127.0.0.1", "localhost"], days)
        print_line(
            Console(width=140), f"{renewed.server} and {renewed.server_key.name} are new; ca.crt and node keys stay."
        )
        return
    made = make_certificates(folder, host or ["127.0.0.1", "localhost"], nodes, days)
    console = Console(width=140)
    for path, what in (
        (made.ca, "the certificate authority; needed on every machine"),
        (made.ca_key, "the authority's key, which signs certificates; remove it from the machine afterwards"),
        (made.server, "the SuperLink's certificate"),
        (made.server_key, "the SuperLink's key; for its machine only"),
        *(
            (path, f"node {k}'s key; for its machine only ({path.name}.pub is registered)")
            for k, path in enumerate(made.nodes)
        ),
    ):
        print_line(console, f"{path}  {what}")
