"""What a diagnosis needs of a run folder, or one line on what is missing."""

from __future__ import annotations

from collections.abc import Callable
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
from fedhv.problem.parameters import Layout, initial_model
from fedhv.problem.problem import Problem
from fedhv.problem.random import Purpose, torch_seed
from fedhv.protocol.cohort import ReportBudget
from fedhv.runs.checkpoint import NAME, PREVIOUS, Checkpoint, read_checkpoint
from fedhv.runs.config import Setting, setting_from_tables
from fedhv.runs.history import NAME as HISTORY
from fedhv.runs.history import read_history
from fedhv.runs.reference import read_reference
from fedhv.runs.resolve import resolve
from fedhv.support import toml
from fedhv.support.errors import InputError, unknown

SOURCES = ("start", "previous", "newest")
"""The models that a run folder knows: θ⁰ from the seed, and the pair of checkpoints (or the final model)."""


@dataclass(frozen=True)
class Run:
    r"""A FedHV run as its folder has it.

    Attributes:
        folder: Where it is.
        setting: What it did.
        problem: The setting's, divided among its clients.
        method: The method's name.
        parameters: The method's, with B_rep and ρ_clip.
        seed: Of everything random in it.
        machine: Where and how it was computed.
        reference: r.
        records: The history; round t + 1 holds the report at $\theta^t$ and the weights $w^t$.
        notes: What is missing from the folder.
    """

    folder: Path
    setting: Setting
    problem: Problem
    method: str
    parameters: dict[str, Any]
    seed: int
    machine: dict[str, str]
    reference: tuple[float, ...]
    records: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(task.name for task in self.problem.tasks)

    @property
    def floor(self) -> float:
        r"""$\rho_{\rm clip}$."""
        return float(self.parameters.get("floor", 1e-6))

    @property
    def report(self) -> ReportBudget:
        r"""$B_{\rm rep}$."""
        budget: ReportBudget = self.parameters.get("report", "all")
        return budget

    @property
    def rounds(self) -> int:
        """How many are in the history."""
        return len(self.records)

    @property
    def finished(self) -> bool:
        """Whether the history is as long as the run was to be."""
        return self.rounds >= self.setting.training.rounds

    @cached_property
    def start(self) -> State:
        """The state before the first round."""
        m = len(self.tasks)
        theta = initial_model(self.problem.model, torch_seed(self.seed, Purpose.MODEL))
        return State(theta, torch.full((m,), 1 / m))

    def reported(self, t: int) -> np.ndarray | None:
        r"""$\hat F^t$, where the history has it."""
        return np.array(self.records[t]["report"]) if 0 <= t < self.rounds else None

    def used_weights(self, t: int) -> np.ndarray | None:
        """$w^t$, where the history has it."""
        return np.array(self.records[t]["weights"]) if 0 <= t < self.rounds else None


def read_run(folder: Path, *, data: str | None = None, problem: Problem | None = None) -> Run:
    """A run of FedHV, finished or going on.

    Args:
        folder: The run's folder.
        data: The folder of the datasets.
        problem: The run's problem, where it was one of your own.
    """
    path = folder / "config.toml"
    if not path.is_file():
        found = f"{path.name} is missing" if folder.is_dir() else "there is no such folder"
        raise InputError(f"{folder} holds no run: {found}. Name the folder of one run.")
    config = toml.read(path)
    try:
        method, seed = str(config["run"]["method"]), int(config["run"]["seed"])
        tables = dict(config["setting"])
        parameters = dict(dict(tables.pop("methods", {})).get(method, {}))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} is not of a run: expected [run] and [setting] with all their keys ({error!r})."
        ) from None
    setting = setting_from_tables(tables)
    records, notes = _history(folder, method)
    if not (folder / "reference.toml").is_file():
        raise InputError(f"{folder / 'reference.toml'} is missing: without the reference there are no slacks.")
    reference = read_reference(folder / "reference.toml")
    if problem is None and setting.benchmark == "given":
        raise InputError(
            f"The run in {folder} is on a problem of your own, which its folder does not hold. "
            "Diagnose it in Python: fedhv.theory.diagnosis.diagnose(folder, problem=…)."
        )
    divided = problem if problem is not None else resolve(setting, data=data)[1]
    reference.check(tuple(task.name for task in divided.tasks))
    if len(records) < setting.training.rounds:
        notes.append(f"The run has {len(records)} of {setting.training.rounds} rounds so far.")
    return Run(
        folder=folder,
        setting=setting,
        problem=divided,
        method=method,
        parameters=parameters,
        seed=seed,
        machine=dict(config.get("machine", {})),
        reference=reference.values,
        records=tuple(records),
        notes=tuple(notes),
    )


def _history(folder: Path, method: str) -> tuple[list[dict[str, Any]], list[str]]:
    records, notes = read_history(folder), []
    if not records:
        raise InputError(f"{folder} has no finished round: {HISTORY} is missing or empty.")
    for expected, record in enumerate(records, start=1):
        if record["round"] != expected:
            raise InputError(
                f"{folder / HISTORY}: round {expected} is missing; round {record['round']} stands in its place."
            )
        lacks = [key for key in ("report", "slack", "weights") if key not in record]
        if lacks:
            raise InputError(
                f"The run in {folder} ({method}) has no {lacks[0]} in round {expected} of its history. "
                "Only FedHV's rounds can be diagnosed: they carry reports, slacks and weights."
            )
    notes += _incidents(records)
    if (folder / HISTORY).read_bytes()[-1:] != b"\n":
        notes.append(f"The last line of {HISTORY} was cut short: only rounds 1 to {len(records)} are known.")
    return records, notes


def _incidents(records: list[dict[str, Any]]) -> list[str]:
    """What a reader of the numbers should know: a reference that was too low or was raised, clients left out."""
    watched = [record for record in records if record.get("watch")]
    notes = []
    if watched:
        lowest = min(float(breach["slack"]) for record in watched for breach in record["watch"])
        notes.append(
            f"The reference watch saw {len(watched)} rounds with too little slack, first round {watched[0]['round']}, "
            f"lowest slack {lowest:.4g}: calibrate with a larger margin."
        )
    raised = [str(record["round"]) for record in records if "raised" in record]
    if raised:
        notes.append(f"The reference was raised in round {', '.join(raised)}; measured here is against the first one.")
    out = sum(len(record.get("refused", ())) for record in records)
    if out:
        notes.append(f"{out} replies were left out: the bounds on reports assume that the whole cohort answers.")
    return notes


def stored_models(run: Run, layout: Layout, names: tuple[str, ...]) -> tuple[list[tuple[str, Checkpoint]], list[str]]:
    """The named models that the folder has, in the order of rounds, and notes on those it has not."""
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


def _checkpoint(run: Run, name: str) -> Checkpoint | None:
    return read_checkpoint(run.folder / name, run.start) if (run.folder / name).exists() else None


def _final(run: Run, layout: Layout) -> Checkpoint | None:
    path = run.folder / "model.safetensors"
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
    return Checkpoint(run.rounds, State(theta, run.start.weights))
