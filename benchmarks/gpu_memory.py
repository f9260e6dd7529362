"""The same rounds with decreasing GPU memory: the engine's messages, and whether the numbers stay the same.

    PYTHONPATH=src python3 benchmarks/gpu_memory.py cifar10-mnist-b --methods fedhv,fedcmoo --gib 1,0.6,0.4

Torch's allocator refuses memory above the limit, as on a smaller GPU. The model has no dropout, so that all differences
are rounding errors.
"""

from __future__ import annotations

import argparse
import gc
from dataclasses import dataclass, replace

import torch
from torch import nn

from fedhv.benchmarks.random_images import random_problem
from fedhv.engines.stacked import Stacked
from fedhv.methods import FedHV, make_method
from fedhv.problem.problem import Problem
from fedhv.protocol.evaluation import Evaluation
from fedhv.runs.config import Setting, load_setting
from fedhv.runs.resolve import resolve
from fedhv.simulation.rounds import initial_state, rounds, simulate_together
from fedhv.support.errors import FedHVError

GIB = 2**30


@dataclass(frozen=True)
class Outcome:
    """The result of some rounds."""

    model: torch.Tensor
    report: torch.Tensor | None
    evaluation: Evaluation
    notes: list[str]
    reserved: float


def without_dropout(problem: Problem) -> Problem:
    """The same problem with a model without dropout."""

    def model() -> nn.Module:
        module = problem.model()
        for layer in module.modules():
            if isinstance(layer, nn.Dropout):
                layer.p = 0.0
        return module

    return replace(problem, model=model)


def run_rounds(setting: Setting, problem: Problem, name: str, count: int, precision: str) -> Outcome:
    """Some rounds and an evaluation, from a new engine."""
    method = setting.method(name)
    if isinstance(method, FedHV):
        method = make_method(name, setting.methods[name] | {"reference": (3.0,) * len(problem.tasks)})
    plan = setting.plan(method, seed=0)
    with Stacked(problem, "cuda", precision) as engine:
        state = initial_state(engine, method, plan.seed)
        run = rounds(engine.layout, len(problem.clients), method, plan, state)
        last = next(finished for _, finished in simulate_together(engine, [run]) if finished.number == count)
        report = last.state.record.get("report")
        return Outcome(
            last.state.model.cpu(),
            None if report is None else torch.tensor(report),
            engine.evaluate(last.state.model),
            list(engine.notes),
            torch.cuda.max_memory_reserved() / GIB,
        )


def farthest(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The difference in the norm, relative to the second."""
    return float((ours - theirs).norm() / theirs.norm())


def limited(gib: float | None) -> float:
    """Free all memory and set the limit; returns the memory that is still reserved, in GiB."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(1.0 if gib is None else min(1.0, gib * GIB / total))
    return torch.cuda.memory_allocated() / GIB


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("setting")
    parser.add_argument("--gib", required=True, help="limits, comma-separated")
    parser.add_argument("--methods", default="fedhv,fedcmoo")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--data", help="the folder of the datasets; random images without it")
    arguments = parser.parse_args()
    setting = load_setting(arguments.setting)
    problem = without_dropout(
        resolve(setting, data=arguments.data)[1] if arguments.data else random_problem(setting, test=2000)
    )
    for method in arguments.methods.split(","):
        whole = None
        for gib in (None, *map(float, arguments.gib.split(","))):
            kept = limited(gib)
            limit = "no limit" if gib is None else f"at most {gib:g} GiB"
            name = f"{setting.name} {method}, {limit}, {kept:.2f} GiB kept from before"
            try:
                outcome = run_rounds(setting, problem, method, arguments.rounds, arguments.precision)
            except FedHVError as error:
                print(f"{name}: {error}", flush=True)
                continue
            whole = whole or outcome
            accuracy = outcome.evaluation.mean_accuracy
            print(f"{name}: {outcome.reserved:.2f} GiB reserved, accuracy {accuracy:.2f} %", flush=True)
            apart = f"the model differs by {farthest(outcome.model, whole.model):.1e}"
            if outcome.report is not None and whole.report is not None:
                apart += f", the report by {farthest(outcome.report, whole.report):.1e}"
            print(f"    after {arguments.rounds} rounds {apart} (norms, relative)")
            for note in outcome.notes:
                print(f"    {note}", flush=True)


if __name__ == "__main__":
    main()
