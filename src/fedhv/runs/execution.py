"""The execution of a job on an engine: its state, its rounds as they are recorded, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from safetensors.torch import save as save_tensors
from torch import Tensor

from fedhv.engines import Engine
from fedhv.methods.parts.watch import ReferenceBreached
from fedhv.protocol.memories import Kept
from fedhv.runs.checkpoint import Checkpoint, load_checkpoint
from fedhv.runs.history import History
from fedhv.runs.job import Job
from fedhv.runs.outcome import run_so_far, tests_once
from fedhv.runs.record import MODEL, SUMMARY, Run
from fedhv.runs.saving import Saving
from fedhv.simulation.events import FinishedRound
from fedhv.simulation.loop import rounds
from fedhv.simulation.observer import Observer
from fedhv.simulation.rounds import initial_state
from fedhv.simulation.selection import Selection
from fedhv.support.errors import Diverged, FedHVError
from fedhv.support.files import write_atomic
from fedhv.support.jsonfile import write_object


class Execution:
    """One job being played on an engine."""

    def __init__(
        self,
        job: Job,
        engine: Engine,
        observer: Observer,
        together: int = 1,
        until: int | None = None,
    ) -> None:
        self.job, self.engine, self._until = job, engine, until
        self.state = initial_state(engine, job.method, job.seed)
        self.done = 0
        self.kept: Kept = {}
        self.failure: FedHVError | None = None
        self.best: Tensor | None = None
        self.stopped = ""
        self._result: Run | None = None
        if job.folder is not None:
            checkpoint, note = load_checkpoint(job.folder, self.state)
            if note:
                observer.message(note)
            if checkpoint is not None:
                self.state, self.done = checkpoint.state.to(engine.device), checkpoint.round
                self.kept = {k: _moved(kept, engine.device) for k, kept in checkpoint.kept.items()}
                self.best = None if checkpoint.best is None else checkpoint.best.to(engine.device)
        self.history = History(job.folder, keep=self.done)
        self.selection = Selection(job.setting.evaluation.patience, job.judged)
        if job.plan.selects and self.done:
            for record in self.history.rounds:
                self.selection = self.selection.after(record)
        if self.done == 0 and tests_once(job.problem):
            engine.check_metrics(self.state.model)  # a test set that cannot be judged is found before the work
        self.saving = Saving(job.folder, self.done, job.plan.rounds, job.setting.record.checkpoints, together)

    def rounds(self) -> Any:
        """The rounds that are left, as a conversation with the engine."""
        layout, among = self.engine.layout, self.job.among
        population = self.engine.population if among is None else lambda: among
        method, plan = self.job.method, self.job.plan
        run = rounds(
            layout,
            population,
            method,
            plan,
            self.state,
            self.done,
            self.baseline,
            self.kept,
            sizes=self.engine.sizes,
            until=self._until,
            largest=self.history.largest_step,
            ahead=self.engine.ahead,
        )
        answer: Any = None
        while not self.ended:
            try:
                answer = yield run.send(answer)
            except StopIteration:
                return

    @property
    def ended(self) -> bool:
        """Whether no round follows: all are played, or the run was stopped."""
        return self.done >= self.job.plan.rounds or bool(self.stopped) or self.selection.exhausted

    @property
    def last(self) -> int:
        """The last round to be played now: T, or the round after which the run pauses."""
        rounds = self.job.plan.rounds
        return rounds if self._until is None else min(self._until, rounds)

    def stop(self) -> None:
        """End the run after the last recorded round."""
        self.stopped = "observer"
        self.save()

    @property
    def baseline(self) -> float | None:
        """The largest test loss of the first evaluation, if there was one, for the detection of explosions."""
        first = self.history.first_evaluated
        if first is None or first.evaluation is None:
            return None
        return max(task.loss for task in first.evaluation.only(self.job.judged).tasks)

    def fail(self, error: FedHVError) -> None:
        """The run cannot continue; its last good state is kept, and nothing is rolled back."""
        if isinstance(error, ReferenceBreached):
            error = error.named([task.name for task in self.job.problem.tasks])
        kept = f" The state after round {self.done} is kept." if self.job.folder is not None and self.done else ""
        self.failure = type(error)(f"{self.job.label}, after round {self.done}: {error}{kept}{self._way_back(error)}")
        self.save()

    def _way_back(self, error: FedHVError) -> str:
        """How to go back behind rounds that no evaluation has confirmed, where a run has diverged."""
        last = self.history.last_evaluated
        if self.job.folder is None or not isinstance(error, Diverged) or last is None or last.number == self.done:
            return ""
        return f" The last evaluated state is that of round {last.number}: go back with --resume-from {last.number}."

    def record(self, finished: FinishedRound) -> None:
        """Keep a finished round."""
        record = finished.record
        self.history.append(replace(record, extra={**record.extra, **self.engine.measured(record.number)}))
        kept = {**self.kept, **finished.kept} if finished.kept else self.kept
        selection = self.selection.after(record) if self.job.plan.selects else self.selection
        best = self.best
        if self.job.setting.evaluation.keep == "best" and selection.round == finished.number:
            best = finished.state.model
        # No call in this statement: Ctrl-C comes before all of it or after.
        self.state, self.done, self.kept, self.selection, self.best = (
            finished.state, finished.number, kept, selection, best
        )  # fmt: skip
        if self.engine.saves_every_round or self.saving.due(self.done) or self.ended:
            self.save()
        self.saving.keep(self.done, self.ended)

    def save(self) -> None:
        """Write a checkpoint, if there is anything new."""
        self.saving.save(Checkpoint(self.done, self.state, self.kept, self.best), self.history)

    def result(self) -> Run:
        """The finished run, with its results written; or, if it pauses before its end, the run so far."""
        if self.ended:
            return self.finish()
        self.save()
        return run_so_far(self)

    def finish(self) -> Run:
        """Write the results of the run, once."""
        if self._result is None:
            self._result = run_so_far(self)
            if self.job.folder is not None:
                write_atomic(self.job.folder / MODEL, save_tensors(self._result.state_dict))
                write_object(self.job.folder / SUMMARY, self._result.summary.as_dict())
        return self._result

    def __enter__(self) -> Execution:
        return self

    def __exit__(self, *_: object) -> None:
        self.history.close()


def _moved(tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    return {name: value.to(device) for name, value in tensors.items()}
