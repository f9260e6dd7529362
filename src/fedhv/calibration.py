"""Calibration: the reference is the largest loss of uniform-weight training, task by task, plus a margin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedhv.config import Setting, override_setting
from fedhv.jobs import Job
from fedhv.methods import FedHV, Method, Uniform
from fedhv.observer import Observer, Renamed
from fedhv.problem import Problem
from fedhv.reference import Cost, Provenance, Reference
from fedhv.resolve import resolve


def calibrate(
    setting: Setting,
    method: Method | None = None,
    problem: Problem | None = None,
    *,
    engine: str = "auto",
    device: str = "auto",
    data: str | None = None,
    folder: Path | None = None,
    observer: Observer | None = None,
) -> Reference:
    """FedHV's reference: uniform-weight rounds, the componentwise maximum of the reports, plus a margin.

    Args:
        setting: Its `[calibration]` says how many rounds, which seeds and which margin, and may name another
            setting to calibrate under.
        method: Whose learning rates are used; by default FedHV's of the setting.
        problem: The setting's problem, if it is at hand.
        engine: As for `run`.
        device: As for `run`.
        data: As for `run`.
        folder: Where the calibration runs are kept; an interrupted calibration goes on from there.
        observer: Is told about progress.
    """
    observer = observer or Observer()
    rule = setting.calibration
    under = setting
    if rule.setting is not None and rule.setting != setting.name:
        under, problem = resolve(rule.setting, data=data)
    elif problem is None:
        under, problem = resolve(setting, data=data)
    rates = method or setting.method(FedHV.name)
    seeds = ", ".join(str(seed) for seed in rule.seeds)
    observer.say(
        f"No reference given: calibrating with {rule.rounds} uniform-weight rounds on {under.name} "
        f"(seed{'s' if len(rule.seeds) > 1 else ''} {seeds}), margin {rule.margin:g}."
    )
    uniform = Uniform(server_lr=rates.server_lr, local_lr=rates.local_lr, report="all")
    brief = override_setting(under, [f"training.rounds={rule.rounds}", "evaluation.every=0"])
    records: list[dict[str, Any]] = []
    for seed in rule.seeds:
        job = Job(brief, problem, uniform, seed, engine, device)
        watch = Renamed(observer, f"calibration seed {seed}")
        place = folder / f"seed{seed}" if folder else None
        records += job.execute(place, resume=True, observer=watch).history
    maxima = tuple(max(values) for values in zip(*(record["report"] for record in records), strict=True))
    reference = Reference(
        values=tuple(value + rule.margin for value in maxima),
        tasks=tuple(task.name for task in problem.tasks),
        provenance=Provenance(
            source="calibration", setting=under.name, seeds=rule.seeds, rounds=rule.rounds, margin=rule.margin,
            server_lr=rates.server_lr, local_lr=rates.local_lr, maxima=maxima,
        ),
        cost=Cost(
            rounds=len(records),
            downlink_bytes=sum(record["downlink_bytes"] for record in records),
            uplink_bytes=sum(record["uplink_bytes"] for record in records),
            seconds=round(sum(record["seconds"] for record in records), 3),
        ),
    )  # fmt: skip
    observer.say(f"Reference: {', '.join(f'{value:.6f}' for value in reference.values)}.")
    return reference
