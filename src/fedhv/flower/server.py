"""The ServerApp: a run with the files of `fedhv run` (reference, checkpoints, history), with nodes as clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedhv.flower import run_config
from fedhv.flower.engine import over_flower
from fedhv.flower.log import Log
from fedhv.flower.node import Server, refuse_for_nodes
from fedhv.flower.patience import Patience
from fedhv.flower.status import STOP, discard_stop
from fedhv.interface import run
from fedhv.methods import Method
from fedhv.problem.problem import Problem
from fedhv.protocol.report_privacy import ReportPrivacy
from fedhv.runs.config import Setting
from fedhv.runs.record import Run
from fedhv.runs.resolve import resolve_setting
from fedhv.simulation.observer import Observer
from fedhv.support.errors import InputError


def server_app(
    load: Callable[[Context], Server | Problem],
    *,
    method: str | Method = "fedhv",
    override: Iterable[str] = (),
    patience: Patience | None = None,
) -> ServerApp:
    """A Flower ServerApp that runs a method on the nodes and writes the run folder that `fedhv run` writes.

    The app's run configuration overrides the arguments. It may have `method`, `seed`, `rounds`, `out` (the run's
    folder), `reference` (a file), `reply-seconds` and `node-seconds` (time limits for replies and for nodes),
    `min-replies`, `quorum`, `grace` and `profile` (as in the setting's table `server`), and `roster` (the file that
    assigns partitions to nodes). A run that exists in `out` is resumed.

    Args:
        load: Called with the context; returns a `Server` or a problem.
        method: A method's name, "package.module:Class", or a `Method`.
        override: `section.key=value` changes of the setting.
        patience: The time limits of the server.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        has = load(context)
        settings = context.run_config
        serve(
            grid,
            has.problem() if isinstance(has, Server) else has,
            run_config.text(settings, "method") or method,
            seed=run_config.whole(settings, "seed") or 0,
            rounds=run_config.whole(settings, "rounds"),
            out=run_config.text(settings, "out"),
            reference=run_config.text(settings, "reference"),
            override=[*override, *run_config.override(settings)],
            patience=run_config.patience(settings, patience),
            owners=run_config.owners(settings),
            observer=Log(),
        )

    return app


def serve(
    grid: Grid,
    what: str | Setting | Problem,
    method: str | Method = "fedhv",
    *,
    seed: int = 0,
    rounds: int | None = None,
    out: str | Path | None = None,
    reference: Any = None,
    override: Iterable[str] = (),
    patience: Patience | None = None,
    data: str | None = None,
    reports: ReportPrivacy | None = None,
    observer: Observer | None = None,
    owners: Mapping[int, int] | None = None,
) -> Run:
    """One method on the nodes of a grid; the arguments are those of `fedhv.run`.

    `reports` is the clipping and noise of reports. The nodes apply it; here it is only recorded in `config.toml`.
    `owners` has the node of every partition.
    """
    override = list(override)
    setting = resolve_setting(what, override, rounds)
    if isinstance(what, Problem):
        refuse_for_nodes(setting, what)
    given = any(each.strip().startswith("calibration.rounds") for each in override)
    if isinstance(what, Problem) and not given and setting.calibration.rounds > setting.training.rounds:
        # Rounds are expensive on nodes: the calibration of a user's own problem is not longer than its run.
        override.append(f"calibration.rounds={setting.training.rounds}")
        setting = resolve_setting(what, override, rounds)
    other = setting.calibration.setting
    if reference is None and other not in (None, setting.name):
        raise InputError(
            f"The reference of '{setting.name}' is calibrated under '{other}', whose data these nodes do not have. "
            "Set a reference with --reference."
        )
    stopping = None if out is None else Path(out) / STOP
    finished = run(
        what,
        method,
        seed=seed,
        rounds=rounds,
        out=out,
        engine=over_flower(
            grid,
            patience,
            setting.server.min_replies,
            reports,
            owners,
            stop=stopping,
            tell=None if observer is None else observer.message,
        ),
        reference=reference,
        resume=True,
        override=override,
        data=data,
        observer=observer,
    )
    if stopping is not None:
        discard_stop(stopping)
    return finished
