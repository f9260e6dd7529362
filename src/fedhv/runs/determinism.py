"""`fedhv run --check-determinism`: a few rounds computed twice and compared bit for bit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from safetensors.torch import save as save_tensors

from fedhv.engines import Choice, Engine, Parallel, choose_engine
from fedhv.engines.trial_run import check_model
from fedhv.methods import Method
from fedhv.methods.base import with_reference
from fedhv.problem.problem import Problem
from fedhv.runs.calibration import find_reference
from fedhv.runs.config import Setting, override_setting
from fedhv.runs.reference import Reference
from fedhv.runs.resolve import resolve, resolve_reference
from fedhv.runs.threads import one_thread
from fedhv.simulation.observer import Observer
from fedhv.simulation.rounds import simulate
from fedhv.support.errors import FedHVError
from fedhv.support.wording import counted

ROUNDS = 3
"""Enough rounds to use weights that depend on reports, and to report their effect."""
WORKERS = (1, 2, 3)


class NotDeterministic(FedHVError):
    """The same seed gave two different histories."""


@dataclass(frozen=True)
class Trace:
    """The result of a few rounds: their history without times, and a digest of the model's bits."""

    how: str
    history: tuple[dict[str, Any], ...]
    digest: str


def check_determinism(
    what: str | Setting | Problem,
    method: str | Method = "fedhv",
    *,
    seed: int = 0,
    rounds: int = ROUNDS,
    engine: str = "auto",
    device: str = "auto",
    precision: str = "auto",
    reference: Any = None,
    override: Iterable[str] = (),
    data: str | None = None,
    observer: Observer | None = None,
) -> list[Trace]:
    """Compute a few rounds twice and compare; `NotDeterministic` names the first number that differs.

    Without an engine's name, on a CPU, the sequential engine is compared with itself and with one, two and three
    worker processes. A named engine is compared with itself. Nothing is written. Without a reference FedHV gets one
    from a single calibration round, which is enough for comparing.
    """
    observer = observer or Observer()
    setting, problem = resolve(what, override, rounds, data)
    chosen = setting.chosen(method)
    check_model(problem)
    choice = choose_engine("sequential" if engine == "auto" else engine, device, precision, problem)
    if engine == "auto" and choice.device.type != "cpu":
        choice = choose_engine("auto", device, precision, problem)
    given = resolve_reference(reference, setting, problem)
    if getattr(chosen, "reference", ()) is None:
        given = given or _quick_reference(setting, chosen, problem, choice, data)
        chosen = with_reference(chosen, given.values)
    traces: list[Trace] = []
    with one_thread():
        for how, make in _ways(choice, problem, engine == "auto" and choice.device.type == "cpu"):
            with make as player:
                traces.append(_trace(how, player, setting, chosen, seed))
            observer.message(f"{how}: {rounds} rounds, model {traces[-1].digest[:16]}")
            if difference := first_difference(traces[0], traces[-1]):
                raise NotDeterministic(f"{traces[0].how} and {how} differ: {difference}.")
    return traces


def first_difference(one: Trace, other: Trace) -> str:
    """The first difference between two traces, in words; empty if they are equal bit for bit."""
    for number, (a, b) in enumerate(zip(one.history, other.history, strict=True), start=1):
        for key in sorted(a.keys() | b.keys()):
            if a.get(key) != b.get(key):
                return f"`{key}` of round {number} is {a.get(key)} and {b.get(key)}"
    return "" if one.digest == other.digest else "the models after the last round"


def _ways(choice: Choice, problem: Problem, workers: bool) -> Iterator[tuple[str, Engine]]:
    """The engines to compare; all are compared with the first."""
    for again in ("", " again"):
        yield f"{choice.engine}{again}", choice.make(problem)
    if workers:
        for count in WORKERS:
            yield f"parallel, {counted(count, 'worker')}", Parallel(problem, workers=count)


def _trace(how: str, engine: Engine, setting: Setting, method: Method, seed: int) -> Trace:
    plan = replace(setting.plan(method, seed), evaluate_every=1)
    history, model = [], torch.empty(0)
    for finished in simulate(engine, method, plan):
        history.append(replace(finished.record, seconds=0.0).as_dict())
        model = finished.state.model
    bits = save_tensors({"model": model.detach().cpu().contiguous()})
    return Trace(how, tuple(history), hashlib.sha256(bits).hexdigest())


def _quick_reference(setting: Setting, method: Method, problem: Problem, choice: Choice, data: str | None) -> Reference:
    brief = override_setting(setting, ["calibration.rounds=1", f"calibration.seeds=[{setting.calibration.seeds[0]}]"])
    return find_reference(brief, method, problem, choice=choice, data=data)
