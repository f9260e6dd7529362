"""The parts of a baseline: one run for every task, for every client, or one run of all examples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedhv.engines import Choice
from fedhv.methods import Uniform
from fedhv.methods.parts.server import ServerOptimiser
from fedhv.problem.missing import rows
from fedhv.problem.problem import Clients, Problem
from fedhv.protocol.faults import NO_FAULTS
from fedhv.runs.baselines.methods import Pooled, SingleTask
from fedhv.runs.config import Setting
from fedhv.runs.job import Job
from fedhv.runs.sections import ServerSettings


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
