"""Calibration: the reference of each task is the largest reported loss of uniform-weight training, plus a margin."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedhv.engines import Choice, choose_engine
from fedhv.methods import FedHV, Method, Uniform
from fedhv.methods.base import needs_reference
from fedhv.problem.problem import Problem
from fedhv.problem.warm_start import WarmStart
from fedhv.protocol.scales import loss_units
from fedhv.runs.config import Setting, as_shipped, override_setting
from fedhv.runs.folder import check_folder
from fedhv.runs.job import Job
from fedhv.runs.reference import CALIBRATION, Cost, Provenance, Reference
from fedhv.runs.resolve import resolve
from fedhv.simulation.divergence import exploded
from fedhv.simulation.observer import Forwarding, Observer
from fedhv.simulation.record import Round
from fedhv.support.errors import Diverged, EarlyStop, InputError
from fedhv.support.wording import joined


class _Whole(Forwarding):
    """Forwards all events; a calibration computes all its rounds, also if an observer would end a run early."""

    def round(self, round: Round) -> None:
        """Forward the event."""
        with suppress(EarlyStop):
            super().round(round)


def find_reference(
    setting: Setting,
    method: Method | None = None,
    problem: Problem | None = None,
    *,
    choice: Choice | None = None,
    data: str | None = None,
    folder: Path | None = None,
    observer: Observer | None = None,
) -> Reference:
    """FedHV's reference: the componentwise maximum of the reports of uniform-weight rounds, plus a margin.

    Args:
        setting: Its `[calibration]` has the rounds, the seeds and the margin, and may name another setting for the
            calibration.
        method: The method whose learning rates are used; by default the setting's FedHV.
        problem: The setting's problem, if it is loaded.
        choice: The engine.
        data: The folder of the datasets.
        folder: The folder of the calibration runs; an interrupted calibration is resumed from it.
        observer: Receives progress.
    """
    observer = _Whole(observer or Observer())
    rule = setting.calibration
    under, examples = calibrated_under(setting, problem, data)
    rates = method or setting.method(FedHV.name)
    observer.message(
        f"Calibrating a reference with {rule.rounds} uniform-weight rounds on {under.name} "
        f"(seed{'s' if len(rule.seeds) > 1 else ''} {', '.join(map(str, rule.seeds))}), margin {rule.margin:g}."
    )
    runs = [job.execute(observer) for job in _jobs(setting, under, examples, rates, choice or choose_engine(), folder)]
    tasks = tuple(task.name for task in examples.tasks)
    for run in runs:
        _check_calm(run.rounds, tasks, setting.evaluation.explosion)
    reference = _reference([round for run in runs for round in run.rounds], examples, under, rates, setting)
    observer.message(f"Reference: {', '.join(f'{value:.6f}' for value in reference.values)}.")
    return reference


def calibrated_under(setting: Setting, problem: Problem | None, data: str | None = None) -> tuple[Setting, Problem]:
    """The setting and the problem of a calibration: the setting's own, or those that it names.

    Examples that the setting's clients hold out for validation are held out there too, and a model that starts from
    given parameters starts from them there.
    """
    other = setting.calibration.setting
    if other is None or other == setting.name:
        return (setting, problem) if problem is not None else resolve(setting, data=data)
    _refuse_ignored_changes(setting)
    share = setting.federation.validation
    init = problem.model.state if problem is not None and isinstance(problem.model, WarmStart) else None
    under, examples = resolve(other, [f"federation.validation={share}"] if share else [], data=data, init=init)
    if problem is not None:
        names, found = ([task.name for task in each.tasks] for each in (problem, examples))
        if names != found:
            raise InputError(
                f"`calibration.setting` should have the tasks {', '.join(names)}. Found those of '{other}'."
            )
    return under, examples


def _refuse_ignored_changes(setting: Setting) -> None:
    """Reject changes of a shipped setting that would not affect its calibration under another setting."""
    shipped, other = as_shipped(setting.name), setting.calibration.setting
    if shipped is None or shipped.calibration.setting != other:
        return  # a user's setting, or a chosen `calibration.setting`, is the user's decision
    # A calibration has its own rounds, and holds out the setting's share of examples.
    federation = replace(setting.federation, validation=shipped.federation.validation)
    training = replace(setting.training, rounds=shipped.training.rounds)
    there = {"federation": federation, "training": training, "server": setting.server, "faults": setting.faults}
    changed = ["`benchmark`"] if setting.benchmark != shipped.benchmark else []
    changed += [f"[{name}]" for name, table in there.items() if table != getattr(shipped, name)]
    if changed:
        raise InputError(
            f"'{setting.name}' is calibrated under '{other}', where its changed {joined(changed)} would have no "
            f"effect. Add --set calibration.setting={setting.name} to calibrate with the changes, or choose a "
            "reference with --reference."
        )


def calibrated_with(methods: Sequence[Method]) -> Method | None:
    """The method whose learning rates a shared calibration has; FedHV if several need a reference, else the first."""
    lacking = [method for method in methods if needs_reference(method)]
    return next((method for method in lacking if method.label == FedHV.name), lacking[0] if lacking else None)


Rule = tuple[Any, ...]
"""What fixes a calibration: setting, seeds, rounds, margin, rates."""


def rule_of(reference: Reference) -> Rule:
    """How a reference was calibrated."""
    made = reference.provenance
    return made.setting, made.seeds, made.rounds, made.margin, made.server_lr, made.local_lr


def rule_asked(setting: Setting, under: str, method: Method | None = None) -> Rule:
    """How a setting wants a method's reference calibrated; `under` is the name of the setting that it runs on."""
    rule, rates = setting.calibration, method or setting.method(FedHV.name)
    return under, rule.seeds, rule.rounds, rule.margin, rates.server_lr, rates.local_lr


def check_calibration(
    reference: Reference,
    setting: Setting,
    method: Method,
    problem: Problem,
    choice: Choice,
    data: str | None,
    folder: Path,
) -> None:
    """Reject a stored reference whose calibration differs from the setting's; `folder` has its runs."""
    under, examples = calibrated_under(setting, problem, data)
    kept, wanted = rule_of(reference), rule_asked(setting, under.name, method)
    if kept != wanted:
        raise InputError(
            f"The reference in {folder.parent} has another calibration: expected (setting, seeds, rounds, "
            f"margin, rates) {wanted}, found {kept}. Choose another --out."
        )
    for job in _jobs(setting, under, examples, method, choice, folder):
        if job.folder is not None and job.folder.exists():
            check_folder(job.folder, job.config(), resume=True)


NO_SELECTION = ("evaluation.every=0", "evaluation.keep=last", "evaluation.patience=0")
"""A calibration computes all its rounds and keeps no model."""


def _jobs(
    setting: Setting, under: Setting, problem: Problem, rates: Method, choice: Choice, folder: Path | None
) -> list[Job]:
    """The calibration runs: uniform weights at the method's own rates, reports from every example."""
    rule = setting.calibration
    robust = {name: getattr(rates, name) for name in ("aggregate", "trim") if hasattr(rates, name)}
    uniform = Uniform(server_lr=rates.server_lr, local_lr=rates.local_lr, report="all", **robust)
    brief = override_setting(under, [f"training.rounds={rule.rounds}", *NO_SELECTION])
    return [
        Job(brief, problem, uniform, seed, choice, folder / f"seed{seed}" if folder else None, purpose="calibration")
        for seed in rule.seeds
    ]


def _reported(rounds: Sequence[Round], i: int) -> list[float]:
    """The losses of task i in the rounds that have a client with labels of it."""
    return [round.report[i] for round in rounds if round.report is not None and i not in round.absent]


def _check_calm(rounds: Sequence[Round], tasks: tuple[str, ...], factor: float) -> None:
    """Reject a calibration that has diverged: its reference would give a task almost no weight."""
    for i, name in enumerate(tasks):
        losses = _reported(rounds, i)
        if not losses:
            continue
        first, highest = losses[0], max(losses)
        if exploded(highest, first, factor):
            raise Diverged(
                f"In the calibration the loss of task '{name}' rose from {first:.4g} to {highest:.4g}, more than "
                f"{factor:g} times (`evaluation.explosion`): training diverges. Lower the method's local_lr, or bring "
                "the task's targets to a common scale."
            )


def _reference(played: Sequence[Round], problem: Problem, under: Setting, rates: Method, setting: Setting) -> Reference:
    """The componentwise maximum over all rounds of all runs, plus the margin, with its provenance and cost."""
    rule, tasks = setting.calibration, tuple(task.name for task in problem.tasks)
    reported = [_reported(played, i) for i in range(len(tasks))]
    for name, losses in zip(tasks, reported, strict=True):
        if not losses:
            raise InputError(
                f"The calibration should see labels of every task. Found no client with labels of task '{name}' in "
                f"{len(played)} rounds; raise `calibration.rounds` or `federation.participants`, or give a reference."
            )
    maxima = tuple(max(losses) for losses in reported)
    return Reference(
        values=tuple(loss + rule.margin for loss in maxima),
        tasks=tasks,
        provenance=Provenance(
            source=CALIBRATION,
            setting=under.name,
            seeds=rule.seeds,
            rounds=rule.rounds,
            margin=rule.margin,
            server_lr=rates.server_lr,
            local_lr=rates.local_lr,
            maxima=maxima,
            units=tuple(loss_units(problem)),
        ),
        cost=Cost(
            rounds=len(played),
            downlink_bytes=sum(each.downlink_bytes for each in played),
            uplink_bytes=sum(each.uplink_bytes for each in played),
            seconds=round(sum(each.seconds for each in played), 3),
        ),
    )
