"""Is a round on a GPU bound by the host? Its time without compilation, its kernels, and the functions of the host.

    PYTHONPATH=src python3 benchmarks/gpu_host.py multimnist:1,multimnist:12,cifar10-mnist-b:1

Every case is a setting and the number of FedHV runs that are computed together, on random images, in tf32.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import pstats
import statistics
import time
from dataclasses import replace

import torch
from gpu_round import show_profile

from fedhv.benchmarks.random_images import random_problem
from fedhv.engines.stacked import Stacked
from fedhv.methods import make_method
from fedhv.runs.config import load_setting
from fedhv.simulation.rounds import initial_state, rounds, simulate_together

ROUNDS, PROFILED = 30, 5


def measure(name: str, runs: int, precision: str) -> None:
    setting = load_setting(name)
    problem = random_problem(setting, test=2000)
    method = make_method("fedhv", setting.methods["fedhv"] | {"reference": (3.0,) * len(problem.tasks)})
    plans = [replace(setting.plan(method, seed), evaluate_every=0) for seed in range(runs)]
    with Stacked(problem, "cuda", precision, compiled=False) as engine:

        def play(count: int) -> list[float]:
            """Seconds of the first rounds."""
            states = [initial_state(engine, method, plan.seed) for plan in plans]
            population, times, last = len(problem.clients), [], time.perf_counter()
            games = [
                rounds(engine.layout, population, method, p, s, ahead=engine.ahead)
                for p, s in zip(plans, states, strict=True)
            ]
            for i, finished in simulate_together(engine, games):
                if i == runs - 1:  # its numbers are there; the next round may have begun
                    times.append(time.perf_counter() - last)
                    last = time.perf_counter()
                    if finished.number == count:
                        break
            return times

        play(3)
        median = 1e3 * statistics.median(play(ROUNDS)) / runs
        print(f"{name}, {precision}, runs together: {runs}, {median:.2f} ms a round and run", flush=True)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            spent = sum(play(PROFILED))
        show_profile(profiler, spent)
        host = cProfile.Profile()
        host.runcall(play, ROUNDS)
        text = io.StringIO()
        pstats.Stats(host, stream=text).sort_stats("tottime").print_stats(25)
        print("\n".join(line[:150] for line in text.getvalue().splitlines()[4:]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", help="setting:runs, comma-separated")
    parser.add_argument("--precision", default="tf32", choices=["float32", "tf32", "bf16"])
    arguments = parser.parse_args()
    for case in arguments.cases.split(","):
        name, runs = case.split(":")
        measure(name, int(runs), arguments.precision)


if __name__ == "__main__":
    main()
