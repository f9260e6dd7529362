"""The data of a run folder that a diagnosis needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fedhv.methods.base import State
from fedhv.problem.initial import initial_model
from fedhv.problem.labels import labels_at
from fedhv.problem.parameters import Layout
from fedhv.problem.problem import Problem
from fedhv.problem.random import Purpose, torch_seed
from fedhv.protocol.cohort import ReportBudget
from fedhv.runs.checkpoint import NAME, PREVIOUS, Checkpoint, read_checkpoint
from fedhv.runs.config import GIVEN, Setting, setting_from_tables
from fedhv.runs.fingerprint import changed, of_problem
from fedhv.runs.folder import FINGERPRINT
from fedhv.runs.history import NAME as HISTORY
from fedhv.runs.record import MODEL, REFERENCE, Run, read_run
from fedhv.runs.resolve import problem_under
from fedhv.simulation.record import Round
from fedhv.support.errors import InputError, unknown

SOURCES = ("start", "previous", "newest")
"""The models of a run folder: θ⁰ from the seed, and the two checkpoints (or the final model)."""


@dataclass(frozen=True)
class FedHVRun:
    r"""A run of FedHV with its problem. Row t of an array belongs to round t + 1, which starts at $\theta^t$.

    Attributes:
        record: The content of its folder.
        folder: Its folder.
        setting: Its setting.
        problem: The setting's problem.
        reference: r.
        reports: $\hat F^t$.
        slacks: $r - \hat F^t$.
        weights: $w^t$.
        floored: The number of slacks below $\rho_{\rm clip}$.
        notes: Data that the folder lacks.
    """

    record: Run
    folder: Path
    setting: Setting
    problem: Problem
    reference: tuple[float, ...]
    reports: np.ndarray
    slacks: np.ndarray
    weights: np.ndarray
    floored: tuple[int, ...]
    notes: tuple[str, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks."""
        return tuple(task.name for task in self.problem.tasks)

    @property
    def floor(self) -> float:
        r"""$\rho_{\rm clip}$."""
        return float(self.record.parameters.get("floor", 1e-6))

    @property
    def preferences(self) -> tuple[float, ...] | None:
        """p, if the run has preferences."""
        given = self.record.parameters.get("preferences")
        return None if given is None else tuple(given)

    @property
    def report(self) -> ReportBudget:
        r"""$B_{\rm rep}$."""
        budget: ReportBudget = self.record.parameters.get("report", "all")
        return budget

    @property
    def rounds(self) -> int:
        """The number of rounds in the history."""
        return len(self.weights)

    @property
    def finished(self) -> bool:
        """Whether the history has all rounds of the run."""
        return self.rounds >= self.setting.training.rounds

    @cached_property
    def start(self) -> State:
        """The state before the first round."""
        m = len(self.tasks)
        theta = initial_model(self.problem.model, torch_seed(self.record.seed, Purpose.MODEL), self.problem.norm)
        return State(theta, torch.full((m,), 1 / m))

    def reported(self, t: int) -> np.ndarray | None:
        r"""$\hat F^t$, if the history has it."""
        return self.reports[t] if 0 <= t < self.rounds else None

    def labelled_tasks(self, t: int) -> np.ndarray:
        """The tasks for which some client in the cohort of round t + 1 has labels."""
        there = np.ones(len(self.tasks), bool)
        there[list(self.record.rounds[t].absent) if 0 <= t < self.rounds else []] = False
        return there

    def used_weights(self, t: int) -> np.ndarray | None:
        """$w^t$, if the history has it."""
        return self.weights[t] if 0 <= t < self.rounds else None


def read_fedhv_run(
    folder: Path, *, data: str | None = None, problem: Problem | None = None, init: Any = None
) -> FedHVRun:
    """A run of FedHV, finished or not.

    Args:
        folder: The run's folder.
        data: The folder of the datasets.
        problem: The run's problem, if it is your own.
        init: The initial model that the run was given, if it was.
    """
    run = read_run(folder)
    setting = setting_from_tables({key: value for key, value in run.table("setting").items() if key != "methods"})
    rounds, notes = run.rounds, []
    _check_rounds(run, folder)
    notes += _incidents(rounds)
    if (folder / HISTORY).read_bytes()[-1:] != b"\n":
        notes.append(f"The last line of {HISTORY} is incomplete: only rounds 1 to {len(rounds)} are known.")
    reference = run.reference
    if reference is None:
        raise InputError(f"{folder / REFERENCE} is missing: without the reference there are no slacks.")
    if problem is None and setting.benchmark == GIVEN:
        raise InputError(
            f"The run in {folder} has a problem of your own, which is not stored in the folder. "
            "Diagnose it in Python: fedhv.theory.diagnosis.diagnose(folder, problem=…)."
        )
    divided = problem_under(setting, problem, data, init)
    _check_same(run, divided)
    reference.check(tuple(task.name for task in divided.tasks))
    notes += _gaps(divided, setting, rounds)
    notes += _other_weights(run)
    if len(rounds) < setting.training.rounds:
        ended = run.ended is not None and run.ended.rounds == len(rounds)
        has = "ended after" if ended else "has"
        notes.append(f"The run {has} {len(rounds)} of {setting.training.rounds} rounds{'' if ended else ' so far'}.")
    return FedHVRun(
        record=run,
        folder=folder,
        setting=setting,
        problem=divided,
        reference=reference.values,
        reports=np.array([round.report for round in rounds]),
        slacks=np.array([round.slack for round in rounds]),
        weights=np.array([round.weights for round in rounds]),
        floored=tuple(round.floored or 0 for round in rounds),
        notes=tuple(notes),
    )


def _check_same(run: Run, problem: Problem) -> None:
    """Reject a problem that is not the run's: its losses would be compared with a reference of others."""
    now = of_problem(problem)
    was = {name: value for name, value in run.table(FINGERPRINT).items() if name in now}
    if was and (differs := changed(was, now)):
        raise InputError(
            f"The run in {run.folder} has another problem. Changed since: {', '.join(differs)}. Give the run's own "
            "problem, and the initial model if it was given one (--init, in Python init=…)."
        )


def _check_rounds(run: Run, folder: Path) -> None:
    """Reject a history that is not FedHV's or has missing rounds."""
    if not run.rounds:
        raise InputError(f"{folder} has no finished round: {HISTORY} is missing or empty.")
    for expected, round in enumerate(run.rounds, start=1):
        for what, values in (("report", round.report), ("slack", round.slack)):
            if values is None or len(values) != len(round.weights):
                raise InputError(
                    f"The run in {folder} ({run.method}) has no {what} in round {expected} of its history. "
                    "Only FedHV's rounds can be diagnosed, because they have reports, slacks and weights."
                )
        if round.number != expected:
            raise InputError(f"{folder / HISTORY}: expected round {expected}, found round {round.number}.")


def _gaps(problem: Problem, setting: Setting, rounds: Sequence[Round]) -> list[str]:
    """Notes on deviations from the theory's assumptions: missing labels, clients with different shares."""
    notes = []
    if problem.train.labelled is not None:
        names, held = [task.name for task in problem.tasks], problem.clients.indices
        there = ", ".join(f"{n} of '{name}'" for name, n in zip(names, labels_at(problem, held), strict=True))
        notes.append(
            f"Labels are missing: of {len(held)} examples there are labels {there}. A task's loss is the mean over "
            "the clients that have it; the bounds on reports assume that all have it."
        )
        without = [sum(i in round.absent for round in rounds) for i in range(len(names))]
        gone = ", ".join(f"'{name}' in {n} rounds" for name, n in zip(names, without, strict=True) if n)
        if gone:
            notes.append(f"Tasks without labels in the cohort, whose last report was used: {gone}.")
    unequal = {key: getattr(setting.federation, key) for key in ("average", "select")}
    if unequal != {"average": "clients", "select": "uniform"}:
        chosen = ", ".join(f'{key} = "{value}"' for key, value in unequal.items())
        notes.append(f"The measured losses give all clients equal shares, the run's reports do not ({chosen}).")
    return notes


def _other_weights(run: Run) -> list[str]:
    """Notes on parts of the run's method that the theory does not have."""
    given, notes = run.parameters, []
    if given.get("preferences") is not None:
        shown = ", ".join(f"{each:g}" for each in given["preferences"])
        notes.append(f"The run follows preferences ({shown}), as w* does here; Φ and its gradient weigh tasks equally.")
    bounds = [f"{key} = {given[key]:g}" for key in ("weight_cap", "smoothing") if given.get(key)]
    if bounds:
        notes.append(f"The run bounds its weights ({', '.join(bounds)}), which w* does not.")
    if given.get("aggregate", "mean") != "mean":
        notes.append(f"The bounds on reports are for their mean; the run has their {given['aggregate']} one.")
    return notes


def _incidents(rounds: Sequence[Round]) -> list[str]:
    """Notes on a reference that was too low or was raised, and on refused replies."""
    watched = [round for round in rounds if round.watch]
    notes = []
    if watched:
        lowest = min(breach.slack for round in watched for breach in round.watch)
        notes.append(
            f"The watch found {len(watched)} rounds with too little slack, first round {watched[0].number}, "
            f"lowest slack {lowest:.4g}: calibrate with a larger margin."
        )
    raised = [str(round.number) for round in rounds if round.raised is not None]
    if raised:
        notes.append(f"The reference was raised in round {', '.join(raised)}; the diagnosis uses the first one.")
    out = sum(len(round.refused) for round in rounds)
    if out:
        notes.append(f"{out} replies were left out: the bounds on reports assume that the whole cohort answers.")
    return notes


def stored_models(
    run: FedHVRun, layout: Layout, names: tuple[str, ...]
) -> tuple[list[tuple[str, Checkpoint]], list[str]]:
    """The named models of the folder, in the order of rounds, and notes on missing ones."""
    for name in names:
        if name not in SOURCES:
            raise unknown("checkpoint", name, SOURCES)
    makers: dict[str, Callable[[], Checkpoint | None]] = {
        "start": lambda: Checkpoint(0, run.start),
        "previous": lambda: _checkpoint(run, PREVIOUS),
        "newest": lambda: _checkpoint(run, NAME) or _final(run, layout),
    }
    found, notes = [], []
    for name in names:
        try:
            checkpoint = makers[name]()
        except InputError as error:
            notes.append(str(error))
            continue
        if checkpoint is None:
            notes.append(f"The run has no {name} checkpoint.")
        else:
            found.append((name, checkpoint))
            if checkpoint.round > run.rounds:
                notes.append(
                    f"The {name} checkpoint is after round {checkpoint.round}, but the history ends with round "
                    f"{run.rounds}: the reports of the rounds between are missing."
                )
    first: dict[int, tuple[str, Checkpoint]] = {}
    for name, checkpoint in found:
        first.setdefault(checkpoint.round, (name, checkpoint))
    return [first[t] for t in sorted(first)], notes


def _checkpoint(run: FedHVRun, name: str) -> Checkpoint | None:
    return read_checkpoint(run.folder / name, run.start) if (run.folder / name).exists() else None


def _final(run: FedHVRun, layout: Layout) -> Checkpoint | None:
    path = run.folder / MODEL
    if not path.exists():
        return None
    try:
        tensors: dict[str, Tensor] = load_file(path)
        for name, shape in zip(layout.names, layout.shapes, strict=True):
            if tensors[name].shape != shape:
                raise InputError(
                    f"{path} does not fit: expected `{name}` of shape {tuple(shape)}, found "
                    f"{tuple(tensors[name].shape)}."
                )
        theta = torch.cat([tensors[name].reshape(-1).float() for name in layout.names])
    except (OSError, SafetensorError, KeyError) as error:
        raise InputError(f"{path} could not be read: {error}.") from None
    ended = run.record.ended
    kept = run.rounds if ended is None or ended.selection is None else ended.selection.round
    unknown_weights = torch.full((len(run.tasks),), torch.nan)  # those of the next round are in a checkpoint only
    return Checkpoint(kept, State(theta, unknown_weights))
