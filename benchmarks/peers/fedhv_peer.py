"""FedHV: a round of FedHV with augmentation and reports, or of plain federated averaging.

python fedhv_peer.py WORKLOAD fedhv|plain ENGINE
"""

from __future__ import annotations

import sys
from dataclasses import replace

import torch
from reading import make_model, read, turns

from fedhv import FedHV, LocalTraining, Problem, Uniform, classification
from fedhv.benchmarks.augment import Normalise
from fedhv.benchmarks.random_images import SHAPES
from fedhv.engines import choose_engine
from fedhv.problem.problem import Clients, Examples
from fedhv.runs.config import load_setting
from fedhv.simulation.rounds import Plan, initial_state, simulate


def main() -> None:
    path, kind, name = sys.argv[1:]
    workload = read(path)
    numbers = workload.numbers
    shape = SHAPES[load_setting(numbers.setting).benchmark]
    examples = Examples(workload.images, tuple(workload.labels.unbind(1)))
    problem = Problem(
        name="workload",
        model=lambda: make_model(numbers),
        tasks=tuple(classification(f"task {i}", 10) for i in range(numbers.tasks)),
        train=examples,
        test=examples[:100],
        prepare=Normalise(tuple(numbers.mean), tuple(numbers.std)),
        augment=shape.augment if kind == "fedhv" else None,
        clients=Clients(workload.indices, workload.offsets),
    )
    method = FedHV(reference=(3.0,) * numbers.tasks, local_lr=numbers.rate) if kind == "fedhv" else Uniform()
    local = LocalTraining(numbers.steps, numbers.batch, numbers.rate)
    plan = Plan(rounds=10**6, participants=numbers.participants, local=local, evaluate_every=0)
    torch.set_num_threads(1)
    with choose_engine(name, "cpu").make(problem) as engine:
        state = initial_state(engine, method, plan.seed)
        for number, _ in enumerate(turns()):
            state = next(simulate(engine, method, replace(plan, rounds=number + 2), state, number)).state


if __name__ == "__main__":
    main()
