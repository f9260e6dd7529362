"""A job is the full definition of a run. Executing it computes the rounds and writes them if there is a folder.

Jobs on the same problem can be executed together: the engine then computes their requests in one computation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_tensors
from torch import Tensor

from fedhv._version import __version__
from fedhv.engines import Choice, Engine, choose_engine
from fedhv.engines.portions import gpu_memory
from fedhv.methods.base import Method, reference_of, with_reference
from fedhv.methods.parts.watch import ReferenceBreached
from fedhv.methods.preferences import with_preferences
from fedhv.problem.metrics import as_metrics
from fedhv.problem.problem import Problem
from fedhv.problem.skew import label_skew
from fedhv.problem.tasks import Task
from fedhv.protocol.evaluation import Evaluation
from fedhv.protocol.exchange import Kept
from fedhv.protocol.scales import loss_units
from fedhv.runs.checkpoint import Checkpoint, keep_checkpoint, kept_rounds, load_checkpoint, save_checkpoint
from fedhv.runs.config import Setting, method_tables
from fedhv.runs.fingerprint import fingerprint
from fedhv.runs.folder import check_folder, open_folder
from fedhv.runs.history import History
from fedhv.runs.record import MODEL, SUMMARY, InMemory, Run
from fedhv.runs.reference import Reference
from fedhv.runs.selected import Selected
from fedhv.runs.summary import summarise
from fedhv.simulation.observer import Observer
from fedhv.simulation.record import Round
from fedhv.simulation.rounds import FinishedRound, Plan, initial_state, rounds, simulate_together
from fedhv.simulation.selection import Selection
from fedhv.simulation.validation import MetricName
from fedhv.support import toml
from fedhv.support.errors import Diverged, EarlyStop, FedHVError, InputError, Interrupted
from fedhv.support.files import locked, make_folder, sweep, write_atomic
from fedhv.support.jsonfile import write_object
from fedhv.support.signals import PATIENCE, DeferredSignals, deferred_signals

SECONDS_BETWEEN_CHECKPOINTS = 2.0
"""The shortest time between checkpoints. A crash loses the rounds since the last one."""

SHARE_OF_CHECKPOINTS = 0.02
"""The largest fraction of time for checkpoints. Large models and many runs are saved less often. Ctrl-C saves."""

PARTS, NEWEST = 10, 3
"""Unless `record.checkpoints` says otherwise, a checkpoint of every tenth of the rounds is kept, the newest three."""

MOST_SECONDS_BETWEEN_CHECKPOINTS = 600.0
"""The longest time between checkpoints, even if saving is slow, as on network disks."""


@dataclass(frozen=True)
class Job:
    """The full definition of a run, and its folder.

    Attributes:
        setting: The setting.
        problem: The setting's benchmark, divided among its clients.
        method: The method with its hyper-parameters.
        seed: The seed of all random draws of the run.
        choice: The engine.
        folder: The run's folder; nothing is written without one.
        reference: The method's reference with its origin and cost.
        purpose: The name in progress and errors, instead of the method's.
        part: What makes the run part of a baseline, for its configuration: the task or the client.
        among: The clients that take part, by number; None for all.
        judged: The tasks, by number, that count for divergence and for the choice of a model; None for all.
    """

    setting: Setting
    problem: Problem
    method: Method
    seed: int
    choice: Choice = field(default_factory=choose_engine)
    folder: Path | None = None
    reference: Reference | None = None
    purpose: str = ""
    part: str = ""
    among: tuple[int, ...] | None = None
    judged: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Raise an error for invalid input before anything is written."""
        n = len(self.problem.clients)
        _check_selection(self.setting, self.problem)
        if self.plan.participants > n:
            raise InputError(
                f"`federation.participants` (M) should be at most N = {n}. Found M = {self.plan.participants}."
            )
        if self.setting.preferences and not self.purpose:  # a calibration has uniform weights
            tasks = [task.name for task in self.problem.tasks]
            object.__setattr__(self, "method", with_preferences(self.method, self.setting.preferences, tasks))
        self.method.check(len(self.problem.tasks))
        self.setting.faults.check(len(self.problem.tasks))
        own = reference_of(self.method)
        if own is not None:
            Reference(own).check(tuple(task.name for task in self.problem.tasks))

    @cached_property
    def plan(self) -> Plan:
        """The plan of the rounds; kept, because progress asks for it after every round of every run."""
        plan, problem = self.setting.plan(self.method, self.seed), self.problem
        selects = self.setting.evaluation.selects
        if problem.validation is None:
            plan = replace(plan, tests=problem.test is not None, judged=self.judged, selects=selects)
        else:
            plan = replace(
                plan,
                tests=False,
                validates=tuple(task.name for task in problem.tasks),
                metrics=() if "reports" in self.choice.fixes else tuple(map(_main_metric, problem.tasks)),
                judged=self.judged,
                selects=selects,
                alone=self.among is not None and len(self.among) == 1,
            )
        return self.choice.adapted(plan)

    @property
    def label(self) -> str:
        """The label in progress."""
        return f"{self.purpose or self.method.label} seed {self.seed}"

    def config(self) -> dict[str, Any]:
        """`config.toml`: the setting with this method only; the reference has its own file."""
        parameters = {key: value for key, value in method_tables(self.method).items() if key != "reference"}
        return {
            "run": {"method": self.method.label, "seed": self.seed, "fedhv": __version__}
            | ({"part": self.part} if self.part else {})
            | self.choice.fixes,
            "machine": self.choice.machine | {"why": self.choice.reason},
            "fingerprint": fingerprint(self.problem, self.method),
            "setting": toml.as_tables(self.setting) | {"methods": {self.method.label: parameters}},
        }

    def open(self, resume: bool) -> None:
        """Create the folder, or check that it has this run."""
        with self.opened(resume):
            pass

    @contextmanager
    def opened(self, resume: bool) -> Iterator[None]:
        """The same, with a lock on the folder. A process that does not get the lock writes nothing."""
        if self.folder is None:
            yield
            return
        config = self.config()
        check_folder(self.folder, config, resume)  # bad input makes no folder
        with locked(make_folder(self.folder)):
            open_folder(self.folder, config, resume)
            yield

    def with_reference(self, reference: Reference) -> Job:
        """The same job with the method's reference."""
        return replace(self, method=with_reference(self.method, reference.values), reference=reference)

    def execute(self, observer: Observer | None = None, until: int | None = None) -> Run:
        """Play the rounds, from the last checkpoint on if the folder has one. With `until` pause after that round."""
        (outcome,) = execute_together([self], lambda jobs: None, observer or Observer(), until)
        if isinstance(outcome, FedHVError):
            raise outcome
        return outcome


def execute_together(
    jobs: Sequence[Job],
    tick: Callable[[Sequence[Execution]], None],
    observer: Observer | None = None,
    until: int | None = None,
) -> list[Run | FedHVError]:
    """Execute jobs on the same problem in step; returns the result or the error of each.

    With `until` they pause after that round: their results are those so far, and another call continues them.

    `observer` receives the rounds of a single job. For several jobs `tick` is used instead, which is called
    after every round of any of them.
    """
    observer = observer or Observer()
    with ExitStack() as stack:
        for job in jobs:
            stack.enter_context(job.opened(resume=True))
            if job.folder is not None:
                sweep(job.folder)
        stack.enter_context(one_thread())
        engine = stack.enter_context(jobs[0].choice.make(jobs[0].problem))
        engine.rounds = max(job.plan.rounds for job in jobs)
        with gpu_memory():
            executions = [
                stack.enter_context(Execution(job, engine, observer, SHARE_OF_CHECKPOINTS / len(jobs), until))
                for job in jobs
            ]
        if len(jobs) == 1:
            observer.start(jobs[0].label, jobs[0].plan.rounds, executions[0].done)
            stack.callback(observer.stop)
        try:
            with deferred_signals(not engine.interruptible, PATIENCE) as signals:
                engine.stopping = lambda: signals.pending
                _play(executions, engine, observer, tick, signals)
        except KeyboardInterrupt:
            saved = False
            while not saved:
                with suppress(KeyboardInterrupt), deferred_signals():  # a second signal changes nothing
                    _save(executions)
                    saved = True
            raise Interrupted(_how_far(executions)) from None
        return [execution.failure or execution.result() for execution in executions]


def _play(
    executions: Sequence[Execution],
    engine: Engine,
    observer: Observer,
    tick: Callable[[Sequence[Execution]], None],
    signals: DeferredSignals,
) -> None:
    """Run the remaining rounds in step, and record them."""

    def between() -> None:
        if signals.pending:
            _save(executions)
            signals.handle()

    def show(finished: FinishedRound) -> None:
        while engine.notes:
            observer.message(engine.notes.pop(0))
        if alone:
            observer.round(finished)
        else:
            tick(executions)

    alone = len(executions) == 1
    try:
        for i, finished in simulate_together(engine, [execution.rounds() for execution in executions], between):
            execution = executions[i]
            if isinstance(finished, FedHVError):
                execution.fail(finished)
                if not alone:  # the others continue, perhaps for hours
                    observer.message(str(execution.failure))
                continue
            execution.record(finished)
            if execution.ended:
                execution.finish()  # at once: the others may yet be interrupted
            # The reader of the output may have ended by the pending signal.
            with suppress(OSError) if signals.pending else nullcontext():
                try:
                    show(finished)
                except EarlyStop:
                    if not execution.ended:
                        execution.stop()
                        execution.finish()
    except FedHVError as stop:  # an error of the engine stops all jobs
        if not alone:
            _save(executions)
            raise
        executions[0].fail(stop)


def _save(executions: Sequence[Execution]) -> None:
    """Write the records of every run, also if a signal arrives or another run fails."""
    with deferred_signals(), ExitStack() as stack:
        for execution in executions:
            stack.callback(execution.save)


class Execution:
    """One job being played on an engine."""

    def __init__(
        self,
        job: Job,
        engine: Engine,
        observer: Observer,
        share: float = SHARE_OF_CHECKPOINTS,
        until: int | None = None,
    ) -> None:
        self.job, self.engine, self._share, self._until = job, engine, share, until
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
        if self.done == 0 and _tests_once(job.problem):
            engine.check_metrics(self.state.model)  # a test set that cannot be judged is found before the work
        self._saved, self._saved_at = self.done, time.monotonic()
        self._kept = max(kept_rounds(job.folder), default=0) if job.folder is not None else 0
        self._pause = SECONDS_BETWEEN_CHECKPOINTS

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
        due = self.engine.saves_every_round or time.monotonic() - self._saved_at > self._pause
        every = self.job.setting.record.checkpoints
        asked = bool(every) and self.done % (every or 1) == 0
        if due or asked or self.ended:
            self.save()
        if self.job.folder is None or self._saved != self.done:
            return
        if asked:
            keep_checkpoint(self.job.folder, self.done)
        elif every is None and self._kept + max(1, self.job.plan.rounds // PARTS) <= self.done and not self.ended:
            keep_checkpoint(self.job.folder, self.done, NEWEST)
            self._kept = self.done

    def save(self) -> None:
        """Write a checkpoint, if there is anything new."""
        if self.job.folder is not None and self.done > self._saved:
            began = time.monotonic()
            self.history.sync()  # a checkpoint is worth nothing without the rounds before it
            save_checkpoint(self.job.folder, Checkpoint(self.done, self.state, self.kept, self.best))
            affordable = min((time.monotonic() - began) / self._share, MOST_SECONDS_BETWEEN_CHECKPOINTS)
            self._pause = max(SECONDS_BETWEEN_CHECKPOINTS, affordable)
        self._saved, self._saved_at = self.done, time.monotonic()

    def result(self) -> Run:
        """The finished run, with its results written; or, if it pauses before its end, the run so far."""
        if self.ended:
            return self.finish()
        self.save()
        return self._run_so_far()

    def finish(self) -> Run:
        """Write the results of the run, once."""
        if self._result is None:
            self._result = self._run_so_far()
            if self.job.folder is not None:
                write_atomic(self.job.folder / MODEL, save_tensors(self._result.state_dict))
                write_object(self.job.folder / SUMMARY, self._result.summary.as_dict())
        return self._result

    def _run_so_far(self) -> Run:
        job, played = self.job, tuple(self.history.rounds)
        model = self.state.model if self.best is None else self.best
        evaluation, selected = self._chosen(played, model)
        summary = summarise(
            setting=job.setting.name,
            method=job.method.label,
            seed=job.seed,
            rates=(job.method.server_lr, job.method.local_lr),
            machine=job.choice.machine,
            participants=job.plan.participants,
            parameters=self.engine.layout.d,
            rounds=played,
            reference=job.reference,
            labels=self.engine.labels(),
            client_labels=self.engine.client_labels(),
            final=evaluation,
            selected=selected,
            loss_units=loss_units(job.problem),
            skew=label_skew(self.engine.problem),
        )
        kept = InMemory(summary, played, self._state_dict(model), job.reference)
        return Run(toml.read_text(toml.write(job.config())), job.folder, kept)

    def _chosen(self, played: Sequence[Round], model: Tensor) -> tuple[Evaluation | None, Selected | None]:
        """The evaluation of the model that is kept, and how it was chosen; test examples are looked at here."""
        job, reference = self.job, self.job.setting.evaluation.reference
        validates = job.problem.validation is not None
        number = self.selection.round if self.best is not None and self.selection.round else self.done
        at = next((each for each in reversed(played) if each.number <= number and each.evaluation is not None), None)
        evaluation = None if at is None else at.evaluation
        if _tests_once(job.problem) or (job.problem.test is not None and (at is None or at.number != number)):
            evaluation = self.engine.evaluate(model, reference)
        if not validates and not self.stopped:
            return evaluation, None
        stopped = self.stopped or ("patience" if self.selection.exhausted else "")
        keep, seen = job.setting.evaluation.keep, at if validates else None
        return evaluation, Selected.of(keep, number, stopped, self.selection, seen)

    def _state_dict(self, model: Tensor) -> dict[str, Tensor]:
        """A model as the module's state dict."""
        tensors = self.engine.client.network.state_dict(model)
        return {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}

    def __enter__(self) -> Execution:
        return self

    def __exit__(self, *_: object) -> None:
        self.history.close()


def _check_selection(setting: Setting, problem: Problem) -> None:
    """Reject a choice of models without examples to choose by."""
    chosen = setting.evaluation
    if chosen.selects and problem.validation is None and chosen.on == "test":
        asks = "keep = 'best'" if chosen.keep == "best" else f"patience = {chosen.patience}"
        raise InputError(
            f"`evaluation.{asks}` needs examples that clients hold out. Found none; set `federation.validation`, for "
            "example 0.1."
        )


def _tests_once(problem: Problem) -> bool:
    """Whether test examples are looked at once, for the model that is kept; rounds are evaluated at the clients."""
    return problem.test is not None and problem.validation is not None


def _main_metric(task: Task) -> MetricName | None:
    for metric in as_metrics(task.name, task.metrics):
        return MetricName(metric.name, metric.better == "lower")
    return None


def _moved(tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    return {name: value.to(device) for name, value in tensors.items()}


def _how_far(executions: Sequence[Execution]) -> str:
    if len(executions) > 1:
        return "Stopped; every run can be resumed."
    job, done = executions[0].job, executions[0].done
    if executions[0].failure:
        return f"{executions[0].failure} Stopped."
    if done == job.plan.rounds:
        return f"Stopped; the run{f' in {job.folder}' if job.folder else ''} has just ended."
    where = f"; the run in {job.folder} can be resumed" if job.folder else ""
    return f"Stopped after round {done} of {job.plan.rounds}{where}."


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums over threads depend on how many there are: one thread gives the same bits on every engine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
