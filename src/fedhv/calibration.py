"""Calibration: the reference is the largest loss of uniform-weight training, task by task, plus a margin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedhv.config import Setting, override_setting
from fedhv.engines import Choice, choose_engine
from fedhv.folders import Result
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
    choice: Choice | None = None,
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
        choice: Where and how it is computed.
        data: The folder of the datasets.
        folder: Where the calibration runs are kept; an interrupted calibration goes on from there.
        observer: Is told about progress.
    """
    observer = observer or Observer()
    rule, under = setting.calibration, setting
    if rule.setting is not None and rule.setting != setting.name:
        under, problem = resolve(rule.setting, data=data)
    elif problem is None:
        under, problem = resolve(setting, data=data)
    rates = method or setting.method(FedHV.name)
    uniform = Uniform(server_lr=rates.server_lr, local_lr=rates.local_lr, report="all")
    brief = override_setting(under, [f"training.rounds={rule.rounds}", "evaluation.every=0"])
    observer.say(
        f"Calibrating a reference with {rule.rounds} uniform-weight rounds on {under.name} "
        f"(seed{'s' if len(rule.seeds) > 1 else ''} {', '.join(map(str, rule.seeds))}), margin {rule.margin:g}."
    )
    runs: list[Result] = []
    for seed in rule.seeds:
        place = folder / f"seed{seed}" if folder else None
        job = Job(brief, problem, uniform, seed, choice or choose_engine(), place)
        job.open(resume=True)
        runs.append(job.execute(Renamed(observer, f"calibration seed {seed}")))
    tasks = tuple(task.name for task in problem.tasks)
    reference = _reference([record for run in runs for record in run.history], tasks, under, rates, setting)
    observer.say(f"Reference: {', '.join(f'{value:.6f}' for value in reference.values)}.")
    return reference


def _reference(
    records: list[dict[str, Any]], tasks: tuple[str, ...], under: Setting, rates: Method, setting: Setting
) -> Reference:
    """The componentwise maximum over all rounds of all runs, plus the margin, with its provenance and cost."""
    rule = setting.calibration
    maxima = tuple(max(losses) for losses in zip(*(record["report"] for record in records), strict=True))
    return Reference(
        values=tuple(loss + rule.margin for loss in maxima),
        tasks=tasks,
        provenance=Provenance(
            source="calibration",
            setting=under.name,
            seeds=rule.seeds,
            rounds=rule.rounds,
            margin=rule.margin,
            server_lr=rates.server_lr,
            local_lr=rates.local_lr,
            maxima=maxima,
        ),
        cost=Cost(
            rounds=len(records),
            downlink_bytes=sum(record["downlink_bytes"] for record in records),
            uplink_bytes=sum(record["uplink_bytes"] for record in records),
            seconds=round(sum(record["seconds"] for record in records), 3),
        ),
    )
