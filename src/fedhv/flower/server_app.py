"""The ServerApp: a run as `fedhv run` makes it, reference, checkpoints, history and all, with nodes for clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedhv.config import Setting
from fedhv.errors import InputError
from fedhv.flower.engine import over_flower
from fedhv.flower.log import Log
from fedhv.flower.node import Server
from fedhv.flower.roster import Patience
from fedhv.folders import Result
from fedhv.methods import Method
from fedhv.observer import Observer
from fedhv.problem import Problem
from fedhv.resolve import resolve
from fedhv.runs import run


def server_app(
    load: Callable[[Context], Server | Problem],
    *,
    method: str | Method = "fedhv",
    override: Iterable[str] = (),
    patience: Patience | None = None,
) -> ServerApp:
    """A Flower ServerApp that runs a method on the nodes and writes the run folder that `fedhv run` writes.

    The app's run configuration may have `method`, `seed`, `rounds`, `out` (the run's folder), `reference` (a file),
    `reply-seconds` and `node-seconds` (how long the server waits for replies and for nodes); it overrides what is
    given here. A run that is in `out` already goes on.

    Args:
        load: Called with the context; returns what the server has.
        method: A method's name, "package.module:Class", or a `Method`.
        override: `section.key=value` changes of the setting.
        patience: How long the server waits.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        has = load(context)
        settings = context.run_config
        serve(
            grid,
            has.problem() if isinstance(has, Server) else has,
            _text(settings, "method") or method,
            seed=_whole(settings, "seed") or 0,
            rounds=_whole(settings, "rounds"),
            out=_text(settings, "out"),
            reference=_text(settings, "reference"),
            override=override,
            patience=patience_of(settings, patience),
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
    observer: Observer | None = None,
) -> Result:
    """One method on the nodes of a grid; the arguments are those of `fedhv.run`."""
    setting, problem = resolve(what, override, rounds, data)
    other = setting.calibration.setting
    if reference is None and other not in (None, setting.name):
        raise InputError(
            f"The reference of '{setting.name}' is calibrated under '{other}', which these nodes do not hold. "
            "Give one with --reference."
        )
    changed = problem if isinstance(what, Problem) else setting
    return run(
        changed,
        method,
        seed=seed,
        out=out,
        engine=over_flower(grid, patience, setting.server.min_replies),
        reference=reference,
        resume=True,
        override=[*override, *([] if rounds is None else [f"training.rounds={rounds}"])],
        data=data,
        observer=observer,
    )


def patience_of(settings: Any, otherwise: Patience | None = None) -> Patience:
    """How long the server waits, from the app's run configuration."""
    given = otherwise or Patience()
    reply, nodes = settings.get("reply-seconds"), settings.get("node-seconds")
    return Patience(float(reply or given.reply), float(nodes or given.nodes), given.again)


def _text(settings: Any, name: str) -> str | None:
    value = settings.get(name)
    if value is not None and not isinstance(value, str):
        raise InputError(f"The run configuration's `{name}` should be text. Found {value!r}.")
    return value or None


def _whole(settings: Any, name: str) -> int | None:
    value = settings.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise InputError(f"The run configuration's `{name}` should be a whole number. Found {value!r}.")
    return value
