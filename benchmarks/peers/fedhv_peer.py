"""FedHV: a round of FedHV with augmentation and reports, or of plain federated averaging.

python fedhv_peer.py WORKLOAD fedhv|plain ENGINE [--device cuda --precision tf32 --compiled yes|no]
"""

from __future__ import annotations

import argparse

import torch
from reading import make_model, read
from torch_turns import torch_turns

from fedhv import FedHV, LocalTraining, Problem, Uniform, classification
from fedhv.benchmarks.augment import Normalise
from fedhv.benchmarks.random_images import SHAPES
from fedhv.engines import Stacked, choose_engine
from fedhv.problem.problem import Clients, Examples
from fedhv.runs.config import load_setting
from fedhv.simulation.rounds import Plan, initial_state, simulate


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workload")
    parser.add_argument("kind", choices=["fedhv", "plain"])
    parser.add_argument("engine")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--compiled", choices=["yes", "no"], help="of the stacked engine, for all rounds")
    arguments = parser.parse_args()
    workload, fedhv = read(arguments.workload), arguments.kind == "fedhv"
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
        augment=shape.augment if fedhv else None,
        clients=Clients(workload.indices, workload.offsets),
    )
    method = FedHV(reference=(3.0,) * numbers.tasks, local_lr=numbers.rate) if fedhv else Uniform()
    local = LocalTraining(numbers.steps, numbers.batch, numbers.rate)
    # A plan that never ends: its last round alone would come with an evaluation.
    plan = Plan(rounds=10**6, participants=numbers.participants, local=local, evaluate_every=0)
    torch.set_num_threads(1)
    choice = choose_engine(arguments.engine, arguments.device, arguments.precision)
    with choice.make(problem) as engine:
        if arguments.compiled and isinstance(engine, Stacked):
            engine.training.compiles = arguments.compiled == "yes"
        state = initial_state(engine, method, plan.seed)
        rounds = simulate(engine, method, plan, state)

        def parameters() -> dict[str, torch.Tensor]:
            return engine.layout.unflatten(state.model)

        def notes() -> dict[str, list[str]]:
            return {"notes": engine.notes}

        # A round has ended when its numbers are there; the next one has then begun.
        for _ in torch_turns(arguments.workload, arguments.device, parameters, describe=notes, waits=False):
            state = next(rounds).state


if __name__ == "__main__":
    main()
