"""What a federated multi-task run has to be held against: single tasks, clients alone, and one pool of all examples.

- single-task: one federated run for every task, with the clients that have labels of it.
- local: every client trains alone; each of its models is evaluated on the common test examples, and the scores are
  averaged over clients. A task that a client has no label of stays untrained there, as it would in practice.
- pooled: one model is trained on the examples of all clients.

All train with uniform weights, the setting's minibatches and T·K gradient steps, as many as a client makes that takes
part in every round, and with the rates that the setting has for `uniform`. A task that is alone weighs 1 instead of
1/m: where rates are as large as the many tasks allow, give single tasks a smaller one (`methods.uniform.local_lr`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from fedhv.engines import choose_engine
from fedhv.methods import Uniform
from fedhv.problem.missing import rows
from fedhv.problem.problem import Clients, Examples, Problem
from fedhv.protocol.evaluation import TaskScore
from fedhv.runs.config import Setting
from fedhv.runs.job import Job
from fedhv.runs.resolve import resolve
from fedhv.simulation.observer import Observer
from fedhv.support.errors import unknown
from fedhv.support.numbers import as_seed

BASELINES = ("single-task", "local", "pooled")


@dataclass(frozen=True)
class Baseline:
    """What a baseline came to.

    Attributes:
        name: One of `BASELINES`.
        seed: Of everything random in its runs.
        tasks: Every task on the test examples; of "local" the means over clients.
        runs: How many models were trained.
    """

    name: str
    seed: int
    tasks: tuple[TaskScore, ...]
    runs: int

    def as_dict(self) -> dict[str, Any]:
        """For a JSON file."""
        tasks = [task.as_dict() for task in self.tasks]
        return {"baseline": self.name, "seed": self.seed, "runs": self.runs, "tasks": tasks}


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
    """One baseline of a setting, or of a problem of your own.

    Args:
        name: "single-task", "local" or "pooled".
        what: As in `run`.
        seed: Of everything random.
        rounds: T instead of the setting's.
        engine: Where single runs are computed; most have one client.
        device: "cpu" or "cuda".
        override: `section.key=value` changes of the setting; learning rates are those of `uniform`.
        data: The folder of the datasets.
        observer: Follows the progress.

    Example:
        >>> run_baseline("pooled", "digits").tasks[0].accuracy
    """
    if name not in BASELINES:
        raise unknown("baseline", name, BASELINES)
    setting, problem = resolve(what, override, rounds, data)
    problems = {"single-task": single_tasks, "local": alone, "pooled": pooled}[name](problem)
    found = [_scores(setting, each, seed, engine, device, name, observer or Observer()) for each in problems]
    if name == "single-task":
        tasks = [scores[0] for scores in found]
    else:
        tasks = [mean_score(scores) for scores in zip(*found, strict=True)]
    return Baseline(name, as_seed(seed), tuple(tasks), len(problems))


def pooled(problem: Problem) -> list[Problem]:
    """One client that holds what all hold."""
    return [replace(problem, clients=Clients.of([np.unique(problem.clients.indices)]))]


def alone(problem: Problem) -> list[Problem]:
    """Every client in a problem of its own."""
    return [replace(problem, clients=Alone.of([mine])) for mine in problem.clients]


class Alone(Clients):
    """One client of a federation: some task may have its labels elsewhere."""

    complete = False


def single_tasks(problem: Problem) -> list[Problem]:
    """Every task in a problem of its own, with the clients that have labels of it."""
    return [_single(problem, i) for i in range(len(problem.tasks))]


def _single(problem: Problem, i: int) -> Problem:
    train = _of_task(problem.train, i)
    test = None if problem.test is None else _of_task(problem.test, i)
    held = list(problem.clients)
    if train.labelled is not None and train.labelled[0] is not None:
        there = rows(train.labelled[0]).numpy()
        held = [mine for mine in held if there[mine].any()]
    return replace(
        problem,
        name=f"{problem.name}: {problem.tasks[i].name}",
        model=_OneOutput(problem.model, i),
        tasks=(problem.tasks[i],),
        train=train,
        test=test,
        heads=None,
        strata={},
        clients=Clients.of(held),
    )


def _of_task(examples: Examples, i: int) -> Examples:
    masks = None if examples.labelled is None else (examples.labelled[i],)
    return Examples(examples.inputs, (examples.targets[i],), masks)


@dataclass(frozen=True)
class _OneOutput:
    """Makes the model with one of its outputs."""

    make: Any
    output: int

    def __call__(self) -> nn.Module:
        return _Part(self.make(), self.output)


class _Part(nn.Module):
    def __init__(self, whole: nn.Module, output: int) -> None:
        super().__init__()
        self.whole, self.output = whole, output

    def forward(self, *inputs: Tensor, **named: Tensor) -> list[Tensor]:
        return [self.whole(*inputs, **named)[self.output]]


def _scores(
    setting: Setting, problem: Problem, seed: int, engine: str, device: str, name: str, observer: Observer
) -> tuple[TaskScore, ...]:
    """A run with uniform weights, its last evaluation."""
    n = len(problem.clients)
    federation = replace(setting.federation, clients=None, participants=min(setting.federation.participants, n))
    method = setting.method(Uniform.name)
    if name != "single-task":
        method = replace(method, server_lr=1.0)  # no server is there to take other steps than the client's
    here = replace(
        setting,
        federation=federation,
        server=replace(setting.server, min_replies=min(setting.server.min_replies, federation.participants)),
        evaluation=replace(setting.evaluation, every=0),
        preferences={},
    )
    choice = choose_engine(engine, device, "auto", problem, here.plan(method, seed))
    return Job(here, problem, method, as_seed(seed), choice, purpose=name).execute(observer).summary.tasks


def mean_score(scores: Sequence[TaskScore]) -> TaskScore:
    """The mean over clients of one task."""
    return TaskScore(
        scores[0].name,
        float(np.mean([score.accuracy for score in scores])),
        float(np.mean([score.loss for score in scores])),
        {name: float(np.mean([score.metrics[name] for score in scores])) for name in scores[0].metrics},
    )
