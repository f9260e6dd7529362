"""Repeatability of runs with dropout on a GPU: resumed, alone and stacked, in portions, on another engine.

    PYTHONPATH=src python3 benchmarks/reliability/gpu_repeat.py --out results/reliability/gpu-repeat.txt

Random images replace the datasets, because bits are compared, not accuracies.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

import fedhv
from fedhv.benchmarks.random_images import random_problem
from fedhv.engines import Engine, Sequential
from fedhv.engines.stacked import Stacked
from fedhv.methods import make_method
from fedhv.methods.base import Method, State
from fedhv.runs.config import Setting, load_setting
from fedhv.simulation.rounds import initial_state, rounds, simulate_together

SEEDS = range(3)
METHODS = ("fedhv", "uniform", "fsmgda", "fedcmoo")
ROUNDS, START = 4, 2
"""Rounds of a run, and after which of them it is interrupted."""
Job = tuple[str, int]


def made(setting: Setting, name: str, tasks: int) -> Method:
    more = {"reference": (4.0,) * tasks} if name == "fedhv" else {}
    return make_method(name, setting.methods.get(name, {}) | more)


def run_rounds(
    engine: Engine, setting: Setting, jobs: Sequence[Job], count: int, states: dict[Job, State] | None = None
) -> dict[Job, list[State]]:
    """The states after every round of several runs that are computed together, optionally from given states."""
    tasks = len(engine.problem.tasks)
    found: dict[Job, list[State]] = {job: [] for job in jobs}
    runs = []
    for name, seed in jobs:
        method = made(setting, name, tasks)
        plan = replace(setting.plan(method, seed, rounds=count), evaluate_every=0)
        start = 0 if states is None else START
        state = initial_state(engine, method, seed) if states is None else states[name, seed]
        runs.append(rounds(engine.layout, engine.population, method, plan, state, start))
    for i, finished in simulate_together(engine, runs):
        if isinstance(finished, fedhv.FedHVError):
            raise finished
        state = finished.state
        found[jobs[i]].append(replace(state, model=state.model.clone()))
    return found


def check(name: str, compiled: bool, lines: list[str]) -> None:
    setting = load_setting(name)
    problem = random_problem(setting)
    jobs = [(method, seed) for seed in SEEDS for method in METHODS]
    label = f"{name}, {'compiled' if compiled else 'eager'}"

    def same(a: dict[Job, list[State]], b: dict[Job, list[State]]) -> str:
        return f"{sum(torch.equal(a[job][-1].model, b[job][-1].model) for job in jobs)} of {len(jobs)}"

    def distance(a: list[State], b: list[State]) -> str:
        pairs = zip(a, b, strict=True)
        return ", ".join(f"{float((x.model - y.model).norm() / x.model.norm()):.1e}" for x, y in pairs)

    with Stacked(problem, "cuda", "float32", compiled=compiled) as engine:
        whole = run_rounds(engine, setting, jobs, ROUNDS)
        again = run_rounds(engine, setting, jobs, ROUNDS)
        lines.append(f"{label}: twelve runs in one stack, twice, bit for bit: {same(whole, again)}")
    with Stacked(problem, "cuda", "float32", compiled=compiled) as engine:  # as another process would
        middle = {job: states[START - 1] for job, states in whole.items()}
        resumed = run_rounds(engine, setting, jobs, ROUNDS, middle)
        lines.append(f"{label}: resumed after round {START} = uninterrupted, bit for bit: {same(whole, resumed)}")
        if compiled:
            return
        alone = run_rounds(engine, setting, jobs[:1], ROUNDS)
        engine.most.size = 7
        portions = run_rounds(engine, setting, jobs, ROUNDS)
    with Sequential(problem, "cuda") as engine:
        sequential = run_rounds(engine, setting, jobs[:4], ROUNDS)
    lines.append(f"{label}: relative distance of the models after rounds 1 to {ROUNDS}")
    lines.append(f"  {jobs[0][0]:8} alone and in a stack of twelve  {distance(alone[jobs[0]], whole[jobs[0]])}")
    for job in jobs[:4]:
        lines.append(f"  {job[0]:8} in portions of 7 and whole      {distance(portions[job], whole[job])}")
        lines.append(f"  {job[0]:8} sequential and stacked          {distance(sequential[job], whole[job])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", default="digits,multimnist")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    lines = [f"torch {torch.__version__}, {torch.cuda.get_device_name()}, fedhv {fedhv.__version__}, float32"]
    for name in arguments.settings.split(","):
        for compiled in (False, True):
            check(name, compiled, lines)
            print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
