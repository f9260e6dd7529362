"""A job is all that fixes a run; executing it plays its rounds, to disk where there is a folder."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_tensors
from torch import Tensor

from fedhv import toml
from fedhv._version import __version__
from fedhv.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from fedhv.config import Setting, method_tables
from fedhv.engines import Engine, choose_engine, make_engine
from fedhv.errors import FedHVError, InputError
from fedhv.files import locked, write_atomic
from fedhv.folders import Result, open_folder
from fedhv.history import History
from fedhv.methods.base import Method
from fedhv.observer import Observer
from fedhv.problem import Problem
from fedhv.reference import Reference
from fedhv.simulation import Plan, initial_state, simulate
from fedhv.summary import summarise

SECONDS_BETWEEN_CHECKPOINTS = 2.0
"""A crash costs at most so much work; resuming is exact from any round."""


class Interrupted(FedHVError):
    """The user stopped a run; it can be resumed."""

    exit_code = 130


@dataclass(frozen=True)
class Job:
    """All that fixes a run.

    Attributes:
        setting: What the run does.
        problem: The setting's benchmark, divided among its clients.
        method: With its hyper-parameters.
        seed: Of everything random in the run.
        engine: "auto" or an engine's name; together with `device` where the run is computed.
        device: "auto", "cpu" or "cuda".
    """

    setting: Setting
    problem: Problem
    method: Method
    seed: int
    engine: str = "auto"
    device: str = "auto"

    def __post_init__(self) -> None:
        """Find bad input before anything is written."""
        n = len(self.problem.clients)
        if self.plan.participants > n:
            raise InputError(
                f"`federation.participants` (M) should be at most N = {n}. Found M = {self.plan.participants}."
            )
        choose_engine(self.engine, self.problem, self.device)

    @property
    def plan(self) -> Plan:
        """What the run does, round by round."""
        return self.setting.plan(self.method, self.seed)

    @property
    def label(self) -> str:
        """What progress shows."""
        return f"{self.method.label} seed {self.seed}"

    def config(self) -> dict[str, Any]:
        """`config.toml`: the setting with the one method that runs; its reference has a file of its own."""
        parameters = {key: value for key, value in method_tables(self.method).items() if key != "reference"}
        choice = choose_engine(self.engine, self.problem, self.device)
        return {
            "run": {"method": self.method.label, "seed": self.seed, "fedhv": __version__},
            "machine": {"engine": choice.engine, "device": str(choice.device), "torch": torch.__version__},
            "setting": toml.as_tables(self.setting) | {"methods": {self.method.label: parameters}},
        }

    def execute(
        self,
        folder: Path | None = None,
        *,
        resume: bool = False,
        reference: Reference | None = None,
        observer: Observer | None = None,
    ) -> Result:
        """Play the rounds, from the last checkpoint on if the folder has one.

        Args:
            folder: Where the run is kept; nothing is written without one.
            resume: Whether the folder may hold this run already.
            reference: Where the method's reference came from, for the summary.
            observer: Is told about progress.
        """
        if folder is not None:
            open_folder(folder, self.config(), resume)
        with (
            locked(folder) if folder else nullcontext(),
            one_thread(),
            make_engine(self.engine, self.problem, self.device) as engine,
        ):
            return _Execution(self, engine, folder, observer or Observer()).finish(reference)


class _Execution:
    """One job being played on one engine."""

    def __init__(self, job: Job, engine: Engine, folder: Path | None, observer: Observer) -> None:
        self.job, self.engine, self.folder, self.observer = job, engine, folder, observer
        self.state = initial_state(engine, job.method, job.seed)
        self.done = 0
        if folder is not None:
            checkpoint, note = load_checkpoint(folder, self.state)
            if note:
                observer.say(note)
            if checkpoint is not None:
                self.state, self.done = checkpoint.state, checkpoint.round
        self.history = History(folder, keep=self.done)
        self.saved = self.done

    def finish(self, reference: Reference | None) -> Result:
        """Play what is left and write what it came to."""
        job, plan = self.job, self.job.plan
        self.observer.start(job.label, plan.rounds, self.done)
        try:
            self._play(plan)
        finally:
            self.observer.stop()
            self.history.close()
        model = self._state_dict()
        summary = summarise(
            setting=job.setting.name,
            method=job.method.label,
            seed=job.seed,
            machine=job.config()["machine"],
            participants=plan.participants,
            parameters=self.engine.layout.d,
            history=self.history.records,
            reference=reference,
        )
        if self.folder is not None:
            write_atomic(self.folder / "model.safetensors", save_tensors(model))
            write_atomic(self.folder / "summary.json", json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
        return Result(summary, self.history.records, model, self.folder, reference)

    def _play(self, plan: Plan) -> None:
        last = time.monotonic()
        try:
            for finished in simulate(self.engine, self.job.method, plan, self.state, self.done):
                self.history.append(finished.as_dict())
                self.state, self.done = finished.state, finished.number
                self.observer.round(finished)
                if self.done == plan.rounds or time.monotonic() - last > SECONDS_BETWEEN_CHECKPOINTS:
                    self._save()
                    last = time.monotonic()
        except KeyboardInterrupt:
            self._save()
            where = f"; the run in {self.folder} can be resumed" if self.folder else ""
            raise Interrupted(f"Stopped after round {self.done} of {plan.rounds}{where}.") from None

    def _save(self) -> None:
        if self.folder is not None and self.done > self.saved:
            save_checkpoint(self.folder, Checkpoint(self.done, self.state))
            self.saved = self.done

    def _state_dict(self) -> dict[str, Tensor]:
        """The final model as the module's state dict."""
        tensors = self.engine.client.network.module.state_dict() | self.engine.layout.unflatten(self.state.model)
        return {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}


def with_reference(method: Method, reference: Reference) -> Method:
    """The method with its reference."""
    return replace(method, reference=reference.values)  # type: ignore[call-arg]


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums over threads depend on how many there are: one thread gives the same bits on every engine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
