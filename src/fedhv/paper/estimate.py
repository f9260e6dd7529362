"""Estimates of the time that missing runs will take.

An estimate uses measured rounds with the same work in the folder. Without such rounds it uses the time of a gradient
step on random images. Both are in seconds of one core, or of the GPU.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedhv.benchmarks.random_images import SHAPES, random_problem
from fedhv.engines import Choice, Sequential, choose_engine
from fedhv.methods.uniform import Uniform
from fedhv.paper.found import Found, RunState
from fedhv.paper.plan import PlannedRun, StudyVariant
from fedhv.paper.running import Options
from fedhv.protocol.cohort import sample_cohort
from fedhv.protocol.exchange import Call
from fedhv.protocol.local import LocalTraining
from fedhv.protocol.requests import Train
from fedhv.runs.config import Setting, load_setting, setting_from_tables
from fedhv.runs.history import read_history
from fedhv.runs.record import CONFIG, read_run
from fedhv.runs.threads import one_thread
from fedhv.simulation.rounds import initial_state
from fedhv.support.cores import usable_cores
from fedhv.support.errors import InputError

STEP_OF_FORWARD = 3
"""The cost of a gradient step in forward passes of its examples, approximately."""

Work = tuple[Any, ...]
"""What a round computes: rounds with the same work take the same time on the same machine."""


@dataclass(frozen=True)
class Forecast:
    """One run, or one calibration, and the estimated time of its remaining rounds.

    Attributes:
        name: Its folder, relative to the reproduction's.
        setting: Its setting.
        method: Its method; "calibration" for uniform-weight rounds that find a reference.
        seed: Its seed.
        state: Its state on disk.
        done: Finished rounds.
        rounds: All rounds.
        seconds: The time of the remaining rounds; None without a measurement or an estimate.
        note: Why it cannot be resumed.
    """

    name: str
    setting: str
    method: str
    seed: int
    state: RunState
    done: int
    rounds: int
    seconds: float | None
    note: str = ""

    @property
    def blocks(self) -> bool:
        """Whether its files prevent the command from starting."""
        return bool(self.note)

    @property
    def to_do(self) -> bool:
        """Whether the command will compute rounds of it."""
        return self.state != "finished" and not self.blocks


def forecasts(found: Sequence[Found], families: Sequence[str], options: Options) -> list[Forecast]:
    """Calibrations and runs in the order of their computation."""
    choice = choose_engine(options.engine, options.device, options.precision)
    known, cores = measured(options.out, choice), _cores(choice, options)

    def seconds(run: PlannedRun, rounds: int) -> float | None:
        """The seconds of some rounds. A round of a calibration takes as long as one of FedHV: the work is the same."""
        setting = run.resolved
        each = known.get(work(run.config(), run.method))
        if each is None:
            each = estimated(setting, run.method, choice)
        return None if each is None else max(rounds, 0) * each / cores

    listed = []
    for under in families:
        rule = load_setting(under).calibration
        for seed in rule.seeds:
            name = f"calibration/{under}/seed{seed}"
            done = len(read_history(options.out / name))
            state: RunState = "interrupted" if done else "missing"
            left = seconds(PlannedRun(StudyVariant(under), "fedhv", seed), rule.rounds - done)
            listed.append(Forecast(name, under, "calibration", seed, state, done, rule.rounds, left))
    for found_run in found:
        run, rounds = found_run.run, found_run.run.resolved.training.rounds
        left = None if found_run.note else 0.0 if found_run.finished else seconds(run, rounds - found_run.done)
        where = (run.name, run.variant.setting, run.method, run.seed)
        listed.append(Forecast(*where, found_run.state, found_run.done, rounds, left, found_run.note))
    return listed


def _cores(choice: Choice, options: Options) -> int:
    """The cores that work at the same time, in one run or in several."""
    if choice.engine == "stacked" or choice.device.type == "cuda":
        return 1
    cores = usable_cores()
    return cores if choice.engine == "parallel" and options.jobs == 1 else min(options.jobs or cores, cores)


def measured(out: Path, choice: Choice) -> dict[Work, float]:
    """Median seconds of a round for every kind of work in the folder that was done on this device with this torch."""
    here = {key: choice.machine[key] for key in ("device", "precision", "torch")}
    seconds: dict[Work, list[float]] = {}
    for path in sorted([*out.glob(f"*/*/{CONFIG}"), *out.glob(f"calibration/*/*/{CONFIG}")]):
        try:
            run = read_run(path.parent)
            if here.items() <= run.machine.items():
                cores = usable_cores() if run.machine["engine"] == "parallel" else 1
                key = work(run.table("setting"), run.method)
                seconds.setdefault(key, []).extend(cores * each.seconds for each in run.rounds)
        except (InputError, AttributeError, KeyError, TypeError, ValueError):
            continue  # a damaged run has no times
    return {key: statistics.median(values) for key, values in seconds.items() if values}


def work(setting: Mapping[str, Any], method: str) -> Work:
    """What one round of a method does, by the tables of its `config.toml`."""
    federation, training = setting["federation"], setting["training"]
    return (
        setting["benchmark"],
        "train" if method in ("fedhv", "uniform") else method,
        setting["methods"][method].get("report"),
        federation["participants"],
        str(federation["samples_per_client"]),
        training["batch_size"],
        training["local_steps"],
    )


def estimated(setting: Setting, method: str, choice: Choice) -> float | None:
    """Seconds of a round, counted in gradient steps; None for benchmarks whose shape is not known."""
    shape = SHAPES.get(setting.benchmark)
    if shape is None:
        return None
    batch, every, tasks = setting.training.batch_size, setting.evaluation.every, len(shape.tasks)
    # FSMGDA makes K steps for every task; FedCMOO computes every task's gradient, of which the first step is made.
    local = setting.training.local_steps
    steps = {"fsmgda": tasks * local, "fedcmoo": tasks + local - 1}.get(method, local)
    budget = getattr(setting.method(method), "report", None)
    held = float(np.mean(setting.federation.sizes(setting.benchmark)))
    reported = 0.0 if budget is None else held if budget == "all" else min(budget * batch, held)
    participants = setting.federation.participants
    forward = participants * reported + (shape.test / every if every else 0.0)
    return (participants * steps + forward / (STEP_OF_FORWARD * batch)) * step_seconds(
        setting.benchmark, batch, str(choice.device)
    )


@cache
def step_seconds(benchmark: str, batch: int, device: str) -> float:
    """Seconds of a gradient step on random images, after a warm-up step."""
    federation = {"clients": 1, "participants": 1, "samples_per_client": batch}
    training = {"rounds": 1, "batch_size": batch, "local_steps": 1}
    tables = {"benchmark": benchmark, "federation": federation, "training": training}
    problem = random_problem(setting_from_tables(tables, default_name=benchmark), test=1)
    taken = 0.0
    with one_thread(), Sequential(problem, device) as engine:
        theta = initial_state(engine, Uniform(), 0).model
        call = Call(Train(theta), sample_cohort(0, 0, 1, 1, LocalTraining(1, batch, 0.1)))
        for _ in range(2):
            began = time.perf_counter()
            engine.client.answer(call, 0)
            if engine.device.type == "cuda":
                torch.cuda.synchronize(engine.device)
            taken = time.perf_counter() - began
    return taken
