"""FedHV's reference, calibrated: `fedhv.calibrate`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedhv.engines import Choice, choose_engine
from fedhv.engines.trial_run import check_model
from fedhv.interface.checks import changes_of, check_applied, check_list
from fedhv.interface.documented import shares_arguments
from fedhv.interface.single import run
from fedhv.interface.surroundings import watched
from fedhv.methods import FedHV, Method
from fedhv.problem.problem import Problem
from fedhv.runs.calibration import calibrated_under, find_reference
from fedhv.runs.config import Setting
from fedhv.runs.reference import Reference
from fedhv.runs.resolve import resolve, resolve_setting
from fedhv.simulation.observer import Observer
from fedhv.support.numbers import as_seed


@shares_arguments(run)
def calibrate(
    what: str | Setting | Problem,
    method: str | Method = FedHV.name,
    *,
    seeds: Sequence[int] | None = None,
    rounds: int | None = None,
    out: str | Path | None = None,
    engine: str | Choice = "auto",
    device: str = "auto",
    precision: str = "auto",
    override: Iterable[str] = (),
    data: str | None = None,
    observer: Observer | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Reference:
    """Calibrate FedHV's reference: the componentwise maximum of the reports of uniform-weight rounds, plus a margin.

    Args:
        what: A setting's name or TOML file, a `Setting`, or a `Problem`. The setting's `[calibration]` has the rounds,
            the seeds and the margin, and may name another setting for the calibration.
        method: The method whose learning rates are used.
        seeds: The seeds of the calibration runs, instead of the setting's.
        rounds: The rounds of every calibration run, instead of the setting's.
        out: The folder of the calibration runs; an interrupted calibration is resumed from it.
        settings: Keys of the setting's tables; `margin=0.2` is one of them.

    Examples:
        >>> reference = fedhv.calibrate("digits", rounds=2, participants=2)
        >>> result = fedhv.run("digits", rounds=1, participants=2, reference=reference)
    """
    changes = changes_of(calibrate, settings, override)
    changes += [] if rounds is None else [f"calibration.rounds={rounds}"]
    if seeds is not None:
        check_list("seeds", seeds)
        changes.append(f"calibration.seeds={[as_seed(seed) for seed in seeds]}")
    setting = resolve_setting(what, changes)
    chosen = setting.chosen(method)
    check_applied(changes, [method])
    own = resolve(what, changes, data=data)[1] if isinstance(what, Problem) else None  # as a run has it
    under, problem = calibrated_under(setting, own, data)
    check_model(problem)
    choice = engine if isinstance(engine, Choice) else choose_engine(
        engine, device, precision, problem, under.plan(chosen, seed=0)
    )  # fmt: skip
    with watched(observer, quiet, choice) as watch:
        folder = Path(out) if out else None
        return find_reference(setting, chosen, problem, choice=choice, data=data, folder=folder, observer=watch)
