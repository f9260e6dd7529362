"""Milliseconds of one round on a GPU, by setting, precision, compilation and how many trajectories share a stack.

    PYTHONPATH=src python3 benchmarks/gpu_round.py cifar10-mnist-b --variants tf32:compiled:1,tf32:eager:10

Without the datasets, random images of the same shape are used: the time does not depend on their content.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace

import torch

from fedhv.benchmarks.random_images import random_problem
from fedhv.engines.stacked import Stacked
from fedhv.methods import FedHV, make_method
from fedhv.problem.problem import Problem
from fedhv.runs.config import Setting, load_setting
from fedhv.runs.resolve import resolve
from fedhv.simulation.rounds import FinishedRound, initial_state, rounds, simulate_together

PROFILED = 5
"""Rounds under the profiler."""


def show_profile(profiler: torch.profiler.profile, seconds: float) -> None:
    """The slowest kernels, and the fraction of time in which the GPU is busy."""
    kernels = [e for e in profiler.key_averages() if e.device_type == torch.autograd.DeviceType.CUDA]
    total = sum(e.self_device_time_total for e in kernels) / 1e6
    print(f"    GPU busy {total * 1e3:.1f} of {seconds * 1e3:.1f} ms", flush=True)
    for e in sorted(kernels, key=lambda e: -e.self_device_time_total)[:14]:
        print(f"    {e.self_device_time_total / 1e3:8.2f} ms {e.count:6d} x  {e.key[:100]}", flush=True)


def measure(
    setting: Setting, problem: Problem, variant: str, method: str, repeat: int, profile: bool, full: bool
) -> None:
    """Print the median round of one variant."""
    precision, mode, most, runs = [*variant.split(":"), "1"][:4]
    gc.collect()  # recordings of the variant before hold memory in cycles
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    engine = Stacked(problem, "cuda", precision, compiled=mode == "compiled")
    engine.training.most.size = int(most)
    chosen = setting.method(method)
    if isinstance(chosen, FedHV):
        chosen = make_method(method, setting.methods[method] | {"reference": (3.0,) * len(problem.tasks)})
    # Evaluations are begun with their round, so rounds beside them would not be comparable.
    plans = [replace(setting.plan(chosen, seed), evaluate_every=0) for seed in range(int(runs))]
    began = time.perf_counter()

    def run_rounds() -> Iterator[tuple[int, FinishedRound]]:
        states = [initial_state(engine, chosen, plan.seed) for plan in plans]
        population = len(problem.clients)
        pairs = zip(plans, states, strict=True)
        runs = [rounds(engine.layout, population, chosen, p, s, ahead=engine.ahead) for p, s in pairs]
        return simulate_together(engine, runs)

    times: list[float] = []
    first = None
    last = None
    for i, finished in run_rounds():
        if i:
            continue
        now = time.perf_counter()
        if first is None:
            first = now - began
        if last is not None and finished.number > 3:
            times.append(now - last)
        last = now
        if len(times) >= repeat:
            break
    if profile:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            began = time.perf_counter()
            for _, finished in run_rounds():
                if finished.number == PROFILED:
                    break
            torch.cuda.synchronize()
            seconds = time.perf_counter() - began
        show_profile(profiler, seconds)
    if full:
        plans = [setting.plan(chosen, seed) for seed in range(int(runs))]
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in run_rounds():
            pass
        torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        every = setting.evaluation.every
        print(f"    {setting.training.rounds} rounds, evaluation every {every}: {seconds:.2f} s", flush=True)
    median = statistics.median(times) * 1e3 / int(runs)
    peak = torch.cuda.max_memory_allocated() / 2**30
    name = f"{setting.name} {method} {variant}"
    for note in engine.notes:
        print(f"    {note}", flush=True)
    engine.close()
    print(f"{name:55s} {median:8.2f} ms a round and run, first {first:6.1f} s, peak {peak:5.1f} GiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("setting")
    parser.add_argument("--variants", required=True, help="precision:compiled|eager:stack[:runs], comma-separated")
    parser.add_argument("--methods", default="fedhv")
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--profile", action="store_true", help="show which kernels take the time")
    parser.add_argument("--full", action="store_true", help="also time all rounds with their evaluations")
    parser.add_argument("--data", help="the folder of the datasets; random images without it")
    parser.add_argument("--set", action="append", default=[], help="section.key=value, as on the command line")
    arguments = parser.parse_args()
    setting = load_setting(arguments.setting, arguments.set)
    problem = resolve(setting, data=arguments.data)[1] if arguments.data else random_problem(setting, test=2000)
    for method in arguments.methods.split(","):
        for variant in arguments.variants.split(","):
            try:
                measure(setting, problem, variant, method, arguments.repeat, arguments.profile, arguments.full)
            except Exception as error:  # one variant that fails must not cost the others
                print(f"{setting.name} {method} {variant}: {type(error).__name__}: {str(error)[:600]}", flush=True)


if __name__ == "__main__":
    main()
