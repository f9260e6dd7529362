"""A stack on a GPU worker of a Ray cluster beside the same stack without Ray: bits, seconds, and a worker that dies.

    PYTHONPATH=src python3 benchmarks/gpu_ray.py [--setting multimnist] [--clients 20,1000] [--rounds 5]

Random images of the setting's shape; FedHV with the setting's local training. Both engines take turns, one round
each. Last, the worker is killed between two rounds, and the rounds after it are compared again.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import torch
from torch import Tensor

from fedhv import FedHV
from fedhv.benchmarks.random_images import random_problem
from fedhv.engines import Engine, Ray, Stacked
from fedhv.runs.config import load_setting
from fedhv.simulation.rounds import Plan, simulate

WARM_UP = 2


def models(engine: Engine, plan: Plan) -> Iterator[Tensor]:
    """The model after every round."""
    return (finished.state.model for finished in simulate(engine, FedHV(reference=(4.0, 4.0), report=1), plan))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", default="multimnist")
    parser.add_argument("--clients", default="20,1000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    arguments = parser.parse_args()
    import ray

    precision = "tf32" if arguments.device == "cuda" else "float32"
    where = torch.cuda.get_device_name() if arguments.device == "cuda" else "CPU"
    print(f"{where}, torch {torch.__version__}, Ray {ray.__version__}, {precision}", flush=True)
    for count in map(int, arguments.clients.split(",")):
        changes = [
            f"federation.clients={count}",
            f"federation.participants={count}",
            "federation.samples_per_client=64",
        ]
        setting = load_setting(arguments.setting, changes)
        problem = random_problem(setting, test=64)
        plan = replace(setting.plan(setting.method("fedhv"), 0), evaluate_every=0)
        with ExitStack() as stack:
            stacked = stack.enter_context(Stacked(problem, arguments.device, precision, compiled=False))
            spread = stack.enter_context(Ray(problem, arguments.device, precision, workers=1, inner="stacked"))
            runs = {"stacked": models(stacked, plan), "ray, one worker": models(spread, plan)}
            found: dict[str, list[float]] = {name: [] for name in runs}
            last: dict[str, Tensor] = {}
            same = 0
            total = WARM_UP + arguments.rounds + 1
            for number in range(total):
                if number == total - 1:
                    ray.kill(spread.workers[0])
                for name, run in runs.items():
                    began = time.perf_counter()
                    last[name] = next(run).cpu()
                    found[name].append(time.perf_counter() - began)
                same += torch.equal(*last.values())
            print(f"{arguments.setting}, {count} clients: the same bits in {same} of {total} rounds", flush=True)
            for name, seconds in found.items():
                usual = 1e3 * statistics.median(seconds[WARM_UP:-1])
                print(f"  {name:16s} {usual:8.1f} ms, first {seconds[0]:5.1f} s, last {seconds[-1]:5.1f} s", flush=True)
            print("  the worker was killed before the last round", *spread.notes, sep="\n  ", flush=True)


if __name__ == "__main__":
    main()
