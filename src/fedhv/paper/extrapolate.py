"""What a run will take where no such round has been measured: a few steps on random images, multiplied.

A rough estimate. It counts gradient steps, reports and evaluations, and leaves out what the server does and how workers
get into each other's way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from fedhv.engines import Choice, Engine, Sequential
from fedhv.methods.uniform import Uniform
from fedhv.protocol.cohort import ReportBudget, sample_cohort
from fedhv.protocol.exchange import Call
from fedhv.protocol.local import LocalTraining
from fedhv.protocol.requests import Train
from fedhv.runs.config import Setting, setting_from_tables
from fedhv.runs.job import one_thread
from fedhv.runs.random_images import SHAPES, random_problem
from fedhv.simulation.rounds import initial_state

SECONDS = 0.8
"""Of steps, and half of it of forward passes, for every model."""
FORWARD = 64
"""Examples of a forward pass: enough of them that a single example's share is that of a report."""
STEP_OF_FORWARD = 3
"""A gradient step takes about so many forward passes of its examples."""


@dataclass(frozen=True)
class Pace:
    """What the parts of a round take on one worker: seconds of a gradient step, and of an example's forward pass."""

    step: float
    forward: float


def pace(setting: Setting, choice: Choice) -> Pace | None:
    """Of the setting's model on the chosen device; None for benchmarks whose shape is not known."""
    if setting.benchmark not in SHAPES:
        return None
    precision = choice.precision if choice.precision in Sequential.precisions else Sequential.precisions[0]
    return _pace(setting.benchmark, setting.training.batch_size, str(choice.device), precision)


@cache
def _pace(benchmark: str, batch: int, device: str, precision: str) -> Pace:
    federation = {"clients": 1, "participants": 1, "samples_per_client": batch}
    training = {"rounds": 1, "batch_size": batch, "local_steps": 1}
    tables = {"benchmark": benchmark, "federation": federation, "training": training}
    problem = random_problem(setting_from_tables(tables, default_name=benchmark), test=FORWARD)
    with one_thread(), Sequential(problem, device, precision) as engine:
        theta = initial_state(engine, Uniform(), 0).model
        forward = _seconds(lambda: engine.evaluate(theta), engine, SECONDS / 2) / FORWARD
        # Of a large model's minibatch only a part, which still fills a core: nobody waits long for an estimate.
        part = max(1, min(batch, int(SECONDS / (STEP_OF_FORWARD * forward))))
        cohort = sample_cohort(0, 0, 1, 1, LocalTraining(1, part, 0.1))
        call = Call(Train(theta), cohort)
        step = _seconds(lambda: engine.client.answer(call, 0), engine, SECONDS)
    return Pace(step * batch / part, forward)


def _seconds(call: Callable[[], object], engine: Engine, budget: float) -> float:
    """The median of as many calls as fit; the first warms up, and counts only where it took all the time there is."""
    taken: list[float] = []
    while not taken or sum(taken) + min(taken) < budget:
        began = time.perf_counter()
        call()
        if engine.device.type == "cuda":
            torch.cuda.synchronize(engine.device)
        taken.append(time.perf_counter() - began)
    return float(np.median(taken[1:] or taken))


def extrapolated(setting: Setting, method: str, parts: Pace, done: int = 0) -> float:
    """Seconds that one worker takes for the rounds after `done`."""
    shape, chosen = SHAPES[setting.benchmark], setting.method(method)
    plan = setting.plan(chosen, seed=0)
    client = _steps(method, len(shape.tasks), plan.local.steps) * parts.step
    client += _reported(setting, getattr(chosen, "report", None)) * parts.forward
    numbers = range(done + 1, plan.rounds + 1)
    evaluations = sum(plan.evaluates(number) for number in numbers)
    return len(numbers) * plan.participants * client + evaluations * shape.test * parts.forward


def _steps(method: str, tasks: int, local: int) -> int:
    """Gradients that a client computes in a round."""
    if method == "fsmgda":
        return tasks * local  # K steps for every task alone
    if method == "fedcmoo":
        return tasks + local - 1  # every task's gradient, of which the first step is made
    return local


def _reported(setting: Setting, budget: ReportBudget | None) -> float:
    """Examples that a client's report is taken on, on average."""
    if budget is None:
        return 0.0
    n = float(np.mean(setting.federation.samples_per_client))
    return n if budget == "all" else min(budget * setting.training.batch_size, n)
