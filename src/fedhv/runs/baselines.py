"""What a federated multi-task run is compared with: single tasks, clients alone, and one pool of all examples.

- single-task: one federated run for every task, with the clients that have labels of it.
- local: every client trains alone; each of its models is evaluated on the common test examples, and the scores are
  averaged over clients. A task that a client has no label of stays untrained there, as it would in practice.
- pooled: one model is trained on the examples of all clients.

A baseline consists of parts: one run for every task, for every client, or one run. Single tasks and clients alone are
runs on the same problem, with the weight on one task or with one client, so engines stack them like other runs.

All parts train with the setting's minibatches and T·K gradient steps, as many as a client makes that takes part in
every round, and choose their models as the setting does. Their learning rates are those of the setting's
`[baselines.NAME]`, else those of `uniform`. A task that is alone weighs 1 instead of 1/m, so with SGD its rate is
divided by m where none is given.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedhv.engines import Choice, choose_engine
from fedhv.methods import Uniform
from fedhv.methods.base import Conversation, Method, State
from fedhv.methods.parts.server import ServerOptimiser
from fedhv.problem.missing import rows
from fedhv.problem.problem import Clients, Problem
from fedhv.protocol.evaluation import Evaluation, OverClients, TaskScore
from fedhv.protocol.faults import NO_FAULTS
from fedhv.protocol.requests import Train
from fedhv.runs.config import Setting
from fedhv.runs.defaults import BASELINES
from fedhv.runs.job import Execution, Job, execute_together
from fedhv.runs.record import Run
from fedhv.runs.resolve import resolve
from fedhv.runs.sections import ServerSettings
from fedhv.runs.selected import Selected
from fedhv.runs.summary import Communication, Summary
from fedhv.simulation.observer import Forwarding, Observer, Progress
from fedhv.simulation.record import Round
from fedhv.support.errors import FedHVError, InputError, unknown
from fedhv.support.numbers import as_seed

AT_A_TIME = 16
"""The largest number of parts that are computed in step on a CPU: each has a model of its own."""


@dataclass(frozen=True, kw_only=True)
class SingleTask(Uniform):
    """Federated averaging of one task's loss.

    Attributes:
        task: Its number.
    """

    name: ClassVar[str] = "single-task"

    task: int = 0

    def start(self, model: Tensor, tasks: int) -> State:
        """All weight is on the task."""
        return State(model, torch.nn.functional.one_hot(torch.tensor(self.task), tasks).float())

    def round(self, state: State) -> Conversation:
        """One round of federated averaging."""
        replies = yield Train(state.model, state.weights)
        return State(model=state.model + self.server_lr * replies.mean_update, weights=state.weights)


@dataclass(frozen=True, kw_only=True)
class Local(Uniform):
    """One client alone: its own steps, which no server averages."""

    name: ClassVar[str] = "local"


@dataclass(frozen=True, kw_only=True)
class Pooled(Uniform):
    """One client that holds everybody's examples."""

    name: ClassVar[str] = "pooled"


METHODS: dict[str, type[Uniform]] = {each.name: each for each in (SingleTask, Local, Pooled)}
assert tuple(METHODS) == BASELINES


@dataclass(frozen=True)
class Part:
    """One run of a baseline.

    Attributes:
        name: Its folder within the baseline's.
        title: The task or the client, in progress and errors.
        method: The method with the baseline's rates.
        among: The clients that take part; None for all.
        judged: The tasks that count; None for all.
        selects: Whether there are held-out examples to choose a model by.
    """

    name: str
    title: str
    method: Uniform
    among: tuple[int, ...] | None = None
    judged: tuple[int, ...] | None = None
    selects: bool = True


def check_baselines(names: Sequence[str]) -> None:
    """Reject names that are not baselines, and one that is given twice."""
    for name in names:
        if name not in BASELINES:
            raise unknown("baseline", name, BASELINES)
    if len(set(names)) < len(names):
        raise InputError(f"`baselines` should name none twice. Found {list(names)}.")


def baseline_method(name: str, setting: Setting, tasks: int, like: Method | None = None) -> Uniform:
    """A baseline's method: rates of `[baselines.NAME]`, else of `uniform`, else those of the method `like`."""
    given = setting.baselines.get(name, {})
    usual = like if like is not None and not setting.rates("uniform") else setting.method(Uniform.name)
    rates: dict[str, Any] = {"server_lr": usual.server_lr, "local_lr": usual.local_lr}
    if name != SingleTask.name:
        rates["server_lr"] = 1.0  # no server is there to take other steps than the client's
    elif setting.training.optimiser == "sgd":
        rates["local_lr"] /= tasks
    return METHODS[name](**(rates | given))


def parts(name: str, problem: Problem, method: Uniform) -> list[Part]:
    """The runs of a baseline."""
    held = problem.validation
    if name == SingleTask.name:
        return [
            Part(f"task-{i}", task.name, _of_task(method, i), _with_labels(problem, i), (i,))
            for i, task in enumerate(problem.tasks)
        ]
    if name == Pooled.name:
        return [Part("all", "", method)]
    found = []
    for k in range(len(problem.clients)):
        judged = None if held is None else tuple(i for i, n in enumerate(_labels(problem, held[k])) if n)
        if judged == () and problem.test is None:
            continue  # nothing to evaluate this client's model on
        found.append(Part(f"client-{k}", f"client {k}", method, (k,), judged or None, selects=judged != ()))
    return found


def _of_task(method: Uniform, i: int) -> Uniform:
    assert isinstance(method, SingleTask)
    return replace(method, task=i)


def _labels(problem: Problem, indices: np.ndarray) -> list[int]:
    """How many of these examples are labelled, for every task."""
    masks = problem.train.labelled or (None,) * len(problem.tasks)
    return [len(indices) if mask is None else int(rows(mask).numpy()[indices].sum()) for mask in masks]


def _with_labels(problem: Problem, i: int) -> tuple[int, ...] | None:
    """The clients with labels of task i; None where all have some."""
    found = tuple(k for k, mine in enumerate(problem.clients) if _labels(problem, mine)[i])
    return None if len(found) == len(problem.clients) else found


def pooled(problem: Problem) -> Problem:
    """One client that holds what all hold, also of the examples that they hold out."""
    held = problem.validation
    return replace(
        problem,
        clients=Clients.of([np.unique(problem.clients.indices)]),
        validation=None if held is None else Clients.of([np.unique(held.indices)]),
    )


def part_job(
    part: Part, setting: Setting, problem: Problem, seed: int, choice: Choice, folder: Path | None = None
) -> Job:
    """The job of a part; `problem` is the pooled one for the pooled baseline."""
    n = len(problem.clients) if part.among is None else len(part.among)
    alone = not isinstance(part.method, SingleTask)
    participants = min(setting.federation.participants, n)
    server = replace(setting.server, min_replies=min(setting.server.min_replies, participants))
    evaluation = setting.evaluation
    if not part.selects:
        evaluation = replace(evaluation, keep="last", patience=0)
    if not evaluation.selects:
        evaluation = replace(evaluation, every=0)
    here = replace(
        setting,
        federation=replace(setting.federation, clients=None, samples_per_client=None, participants=participants),
        server=ServerSettings(optimiser=ServerOptimiser()) if alone else server,
        faults=NO_FAULTS if alone else setting.faults,
        evaluation=evaluation,
        preferences={},
        baselines={},
    )
    if choice.engine == "parallel" and n == 1:
        choice = replace(choice, engine="sequential", reason="one client")
    return Job(
        here,
        problem,
        part.method,
        seed,
        choice,
        None if folder is None else folder / part.name,
        purpose=f"{part.method.label} {part.title}".strip(),
        part=part.name,
        among=part.among,
        judged=part.judged,
    )


def combined(
    name: str, setting: Setting, problem: Problem, seed: int, runs: Sequence[Run], used: Sequence[Part]
) -> Summary:
    """The summary of a baseline from those of its parts."""
    ended = [run.summary for run in runs]
    m = len(problem.tasks)
    if name == SingleTask.name:
        tasks = [each.tasks[i] for i, each in enumerate(ended)]
    else:
        tasks = [mean_score([each.tasks[i] for each in ended]) for i in range(m)]
    sent = [each.communication for each in ended] if name == SingleTask.name else []
    down, up = sum(each.downlink_bytes for each in sent), sum(each.uplink_bytes for each in sent)
    seconds = round(sum(each.seconds for each in ended), 3)
    evaluation = Evaluation.of(tasks, setting.evaluation.reference)
    selection = None
    if problem.validation is not None:
        over = _over_clients(name, [task.name for task in problem.tasks], ended, used)
        selection = Selected(setting.evaluation.keep, max(each.rounds for each in ended), over_clients=over)
    return Summary(
        **{each.name: getattr(evaluation, each.name) for each in fields(Evaluation)},
        setting=setting.name,
        method=name,
        seed=seed,
        machine=ended[0].machine,
        rounds=max(each.rounds for each in ended),
        weights=(1 / m,) * m,
        rates=ended[0].rates,
        loss_units=ended[0].loss_units,
        labels=ended[0].labels,
        communication=Communication(down, up, 0, down + up),
        selection=selection,
        seconds=seconds,
        calibration_seconds=0.0,
        total_seconds=seconds,
    )


def _over_clients(
    name: str, tasks: Sequence[str], ended: Sequence[Summary], used: Sequence[Part]
) -> tuple[OverClients, ...]:
    """Every task's scores over clients, each of its own model; a pool has no clients."""
    if name == Pooled.name:
        return ()
    found = []
    for i, task in enumerate(tasks):
        entries = [
            over
            for summary, part in zip(ended, used, strict=True)
            if summary.selection is not None and (part.judged is None or i in part.judged)
            for over in summary.selection.over_clients
            if over.task == task
        ]
        if name == SingleTask.name:
            found += entries
        elif entries:
            same = [each for each in entries if each.score == entries[0].score]
            found.append(OverClients.of(task, same[0].score, same[0].better == "lower", [e.mean for e in same]))
    return tuple(found)


def mean_score(scores: Sequence[TaskScore]) -> TaskScore:
    """The mean over clients of one task; a client without a number does not count."""
    first = scores[0]
    names = list(dict.fromkeys(name for score in scores for name in score.metrics))
    return TaskScore(
        first.name,
        _mean([score.accuracy for score in scores]),
        _mean([score.loss for score in scores]),
        {name: _mean([score.metrics[name] for score in scores if name in score.metrics]) for name in names},
        tuple(dict.fromkeys(name for score in scores for name in score.lower)),
        first.scored,
    )


def _mean(values: Iterable[float]) -> float:
    found = [value for value in values if math.isfinite(value)]
    return float(np.mean(found)) if found else math.nan


@dataclass(frozen=True)
class Baseline:
    """The results of a baseline.

    Attributes:
        name: One of `BASELINES`.
        seed: The seed of all random draws.
        tasks: Every task on the test examples; of "local" the means over clients.
        runs: How many models were trained.
        rates: The learning rates.
    """

    name: str
    seed: int
    tasks: tuple[TaskScore, ...]
    runs: int
    rates: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For a JSON file."""
        tasks = [task.as_dict() for task in self.tasks]
        return {"baseline": self.name, "seed": self.seed, "runs": self.runs, **asdict(self)["rates"], "tasks": tasks}


def run_baseline(
    name: str,
    what: str | Setting | Problem,
    *,
    seed: int = 0,
    rounds: int | None = None,
    engine: str = "sequential",
    device: str = "cpu",
    override: Iterable[str] = (),
    data: str | None = None,
    observer: Observer | None = None,
) -> Baseline:
    """One baseline of a setting, or of a problem of your own, in memory; `fedhv.compare` keeps them in a folder.

    Args:
        name: "single-task", "local" or "pooled".
        what: As in `run`.
        seed: The seed of all random draws.
        rounds: T instead of the setting's.
        engine: Where single runs are computed; most have one client.
        device: "cpu" or "cuda".
        override: `section.key=value` changes of the setting, such as `baselines.local.local_lr=0.03`.
        data: The folder of the datasets.
        observer: Receives progress.

    Examples:
        >>> run_baseline("pooled", "digits").tasks[0].accuracy
    """
    check_baselines([name])
    setting, problem = resolve(what, override, rounds, data)
    seed = as_seed(seed)
    method = baseline_method(name, setting, len(problem.tasks))
    used = parts(name, problem, method)
    place = pooled(problem) if name == Pooled.name else problem
    choice = choose_engine(engine, device, "auto", place, setting.plan(method, seed))
    jobs = [part_job(part, setting, place, seed, choice) for part in used]
    runs = execute_parts(jobs, observer or Observer())
    found = combined(name, setting, problem, seed, runs, used)
    return Baseline(name, seed, found.tasks, len(used), {"server_lr": method.server_lr, "local_lr": method.local_lr})


def execute_parts(jobs: Sequence[Job], observer: Observer, label: str = "") -> list[Run]:
    """The runs of some jobs on one problem, a few in step at a time; a part that fails ends the baseline."""
    runs: list[Run] = []

    def tick(executions: Sequence[Execution]) -> None:
        done = sum(run.summary.rounds for run in runs) + sum(each.done for each in executions)
        rounds = jobs[0].plan.rounds
        over = all(each.ended for each in executions) and len(runs) + len(executions) == len(jobs)
        observer.runs([Progress(label, rounds if over else min(done // len(jobs), rounds - 1), rounds, None)])

    for start in range(0, len(jobs), AT_A_TIME):
        group = jobs[start : start + AT_A_TIME]
        # A single job would tell the observer of its own rounds.
        for outcome in execute_together(group, tick, observer if len(jobs) == 1 else Silent(observer)):
            if isinstance(outcome, FedHVError):
                raise outcome
            runs.append(outcome)
    return runs


class Silent(Forwarding):
    """Forwards messages only: the progress of a part is not that of its baseline."""

    def start(self, label: str, rounds: int, done: int = 0) -> None:
        """Not forwarded."""

    def round(self, round: Round) -> None:
        """Not forwarded."""

    def stop(self) -> None:
        """Not forwarded."""
