"""A run from its folder: one type, one reader. Parts that only some callers need are read on access."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fedhv.problem.problem import Problem
from fedhv.runs.checkpoint import has_checkpoint
from fedhv.runs.defaults import BASELINES
from fedhv.runs.history import read_history
from fedhv.runs.plot import plot_run
from fedhv.runs.reference import Reference, read_reference
from fedhv.runs.sections import Evaluating
from fedhv.runs.summary import RATES, Summary
from fedhv.simulation.record import Round
from fedhv.support import toml
from fedhv.support.errors import InputError
from fedhv.support.files import in_use
from fedhv.support.jsonfile import read_object
from fedhv.support.numbers import is_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONFIG, SUMMARY, REFERENCE, MODEL = "config.toml", "summary.json", "reference.toml", "model.safetensors"


@dataclass(frozen=True)
class Run:
    """One run, finished or not. Everything in the summary is an attribute too: `run.worst_accuracy`.

    Attributes:
        config: All that fixes the run, as `config.toml` has it.
        folder: Its folder; None if it is in memory only.
        kept: The parts that are in memory and need not be read.
        problem: The user's own problem, where the run was computed on one in this process.
    """

    config: Mapping[str, Any]
    folder: Path | None = None
    kept: InMemory | None = None
    problem: Problem | None = field(default=None, compare=False, repr=False)

    @property
    def setting(self) -> str:
        """The setting's name."""
        return str(self.table("setting").get("name") or "unnamed")

    @property
    def method(self) -> str:
        """The method's label."""
        return str(self.table("run")["method"])

    @property
    def seed(self) -> int:
        """The seed of all random draws of the run."""
        return int(self.table("run")["seed"])

    @property
    def parameters(self) -> dict[str, Any]:
        """The method's hyper-parameters."""
        return self.table("setting", "methods", self.method)

    @property
    def machine(self) -> dict[str, Any]:
        """Its engine, device and precision."""
        return self.table("machine")

    @property
    def of_several_models(self) -> bool:
        """Whether it is a baseline that trains a model for every task or client."""
        return self.method in BASELINES[:2] and "part" not in self.table("run")

    @property
    def planned(self) -> int | None:
        """The planned number of rounds; None if the configuration does not have it."""
        rounds = self.table("setting", "training").get("rounds")
        return rounds if type(rounds) is int and rounds >= 1 else None

    @property
    def evaluation_reference(self) -> float:
        """r_eval, which its hypervolumes are computed against."""
        value = self.table("setting", "evaluation").get("reference")
        return float(value) if is_number(value) else Evaluating.reference

    @cached_property
    def reference(self) -> Reference | None:
        """FedHV's reference with its provenance and cost."""
        if self.kept is not None:
            return self.kept.reference
        path = self._place / REFERENCE
        return read_reference(path) if path.exists() else None

    @cached_property
    def rounds(self) -> tuple[Round, ...]:
        """All rounds so far, in order."""
        if self.kept is not None:
            return self.kept.rounds
        return tuple(read_history(self._place))

    @property
    def history(self) -> list[dict[str, Any]]:
        """The rounds as `history.jsonl` has them, for programs that want plain dictionaries."""
        return [round.as_dict() for round in self.rounds]

    @property
    def evaluations(self) -> list[Round]:
        """The rounds that were evaluated."""
        return [round for round in self.rounds if round.evaluation is not None]

    @cached_property
    def ended(self) -> Summary | None:
        """Its summary, or None if it has not finished; learning rates that an earlier version left out are added."""
        found = self.kept.summary if self.kept is not None else read_summary(self._place)
        server, local = (self.parameters.get(name) for name in RATES)
        if found is None or found.rates is not None or not (is_number(server) and is_number(local)):
            return found
        return replace(found, rates=(float(server), float(local)))

    @property
    def summary(self) -> Summary:
        """Its summary."""
        if self.ended is None:
            raise InputError(f"{self.folder} holds no finished run: {SUMMARY} is missing.")
        return self.ended

    @cached_property
    def state_dict(self) -> dict[str, Tensor]:
        """The kept model, for `module.load_state_dict`."""
        if self.of_several_models:
            what = "task" if self.method == BASELINES[0] else "client"
            raise InputError(
                f"The baseline '{self.method}' has no model of its own but one for every {what}. Name a folder in its "
                "`parts`."
            )
        if self.kept is not None:
            return self.kept.state_dict
        path = self._place / MODEL
        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            what = "is missing" if isinstance(error, FileNotFoundError) else f"could not be read: {error}"
            raise _damaged(path, what) from None

    def in_memory(self) -> Run:
        """The same run with all that its folder holds, which it then no longer needs."""
        model = {} if self.of_several_models else self.state_dict
        kept = InMemory(self.summary, self.rounds, model, self.reference)
        return Run(self.config, None, kept, self.problem)

    def plot(self) -> Figure:
        """A matplotlib figure: the score and the weight of every task against the round. Notebooks show it."""
        return plot_run(self)

    def table(self, *path: str) -> dict[str, Any]:
        """A table of the configuration; empty if it is missing."""
        found: Any = self.config
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found if isinstance(found, dict) else {}

    @property
    def _place(self) -> Path:
        assert self.folder is not None, "a run is on disk or in memory"
        return self.folder

    def __getattr__(self, name: str) -> Any:
        """Everything in the summary is an attribute: `run.worst_accuracy`."""
        if name.startswith("_") or name not in Summary.__dataclass_fields__:  # also while a copy is being made
            raise AttributeError(f"A run has no attribute '{name}'.", name=name, obj=self)
        return getattr(self.summary, name)

    def __repr__(self) -> str:
        """A few words."""
        where = f", {str(self.folder)!r}" if self.folder else ""
        return f"<Run: {self.method} on {self.setting}, seed {self.seed}, {self._came_to()}{where}>"

    def _came_to(self) -> str:
        if self.ended is None:
            return f"{len(self.rounds)} of {self.planned} rounds"
        found = self.ended
        brief = found.brief.replace(" % worst", " %, worst")
        return f"{found.rounds} rounds: {brief}"

    def _repr_html_(self) -> str:
        """A notebook's view: a line and the tasks."""
        title = f"{self.method} on {self.setting}, seed {self.seed}, {self._came_to()}"
        if self.ended is None:
            return f"<p>{escape(title)}</p>"
        metrics = list(dict.fromkeys(name for task in self.ended.tasks for name in task.metrics))
        rows = "".join(
            f"<tr><td>{escape(task.name)}</td><td>{task.accuracy:.2f}</td><td>{task.loss:.4f}</td>"
            f"<td>{weight:.3f}</td>{''.join(_cell(task.metrics.get(name)) for name in metrics)}</tr>"
            for task, weight in zip(self.ended.tasks, self.ended.weights, strict=True)
        )
        head = "".join(f"<th>{escape(name)}</th>" for name in ("task", "accuracy %", "loss", "weight", *metrics))
        return f"<table><caption>{escape(title)}</caption><tr>{head}</tr>{rows}</table>"


def _cell(value: float | None) -> str:
    return "<td></td>" if value is None else f"<td>{value:.4g}</td>"


@dataclass(frozen=True)
class InMemory:
    """The parts of a run that has just ended, from memory."""

    summary: Summary
    rounds: tuple[Round, ...]
    state_dict: dict[str, Tensor]
    reference: Reference | None


def read_run(folder: str | Path) -> Run:
    """The run in a folder, finished or not."""
    folder = Path(folder)
    path = folder / CONFIG
    if not os.path.isfile(path):
        found = f"{CONFIG} is missing" if folder.is_dir() else "there is no such folder"
        raise InputError(f"{folder} has no run: {found}. Name the folder of one run.")
    run = Run(toml.read(path), folder)
    named = run.table("run")
    if not isinstance(named.get("method"), str) or type(named.get("seed")) is not int:
        raise InputError(f"{path} should have `run.method` and `run.seed`. Found neither or one of them.")
    return run


def read_finished(folder: Path) -> Run:
    """The finished run in a folder. Raises `InputError` if a file is missing or damaged."""
    run = read_run(folder)
    _ = run.summary, run.reference, run.rounds, run.state_dict
    return run


def run_state(folder: Path) -> str:
    """Whether the run in a folder is "running", "finished" or "stopped"."""
    return "running" if in_use(folder) else "finished" if read_summary(folder) is not None else "stopped"


def read_summary(folder: Path) -> Summary | None:
    """The summary of a run, or None if it has not finished."""
    path = folder / SUMMARY
    try:
        found = read_object(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _damaged(path, f"could not be read: {error}") from None
    try:
        return Summary.read(found)
    except ValueError as error:
        raise _damaged(path, f"is damaged: {error}") from None


def _damaged(path: Path, what: str) -> InputError:
    """The error for a missing or damaged file of a finished run."""
    if has_checkpoint(path.parent):
        return InputError(f"{path} {what}. Delete it and resume the run: it is written again.")
    return InputError(f"{path} {what}. Delete {path.parent} to start the run again.")
