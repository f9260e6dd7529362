"""The time of a client's local steps on a CPU, by torch operator.

    python benchmarks/cpu_profile.py --settings multimnist,cifar10-mnist-b

One thread, as in a worker. Random images: the time does not depend on their content.
"""

from __future__ import annotations

import argparse
import time

from torch.profiler import ProfilerActivity, profile

from fedhv.benchmarks.random_images import random_problem
from fedhv.engines.sequential import Sequential
from fedhv.protocol.cohort import sample_cohort
from fedhv.protocol.exchange import Call
from fedhv.protocol.requests import Train
from fedhv.runs.config import load_setting
from fedhv.runs.threads import one_thread
from fedhv.simulation.rounds import initial_state

SHOWN = 12


def measure(name: str, repeat: int) -> None:
    """Print the operators of one client's K steps, the slowest first."""
    setting = load_setting(name)
    problem = random_problem(setting, test=64)
    method = setting.method("uniform")
    plan = setting.plan(method, seed=0)
    cohort = sample_cohort(0, 0, len(problem.clients), 1, plan.local)
    with one_thread(), Sequential(problem) as engine:
        theta = initial_state(engine, method, 0).model
        call = Call(Train(theta), cohort)

        def steps() -> None:
            engine.client.answer(call, cohort.clients[0])

        steps()  # warms up
        began = time.perf_counter()
        for _ in range(repeat):
            steps()
        seconds = (time.perf_counter() - began) / repeat / plan.local.steps
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            steps()
    events = profiler.key_averages()
    total = sum(event.self_cpu_time_total for event in events)
    print(
        f"{name}: {1e3 * seconds:.2f} ms a step of {plan.local.batch_size} examples, without the profiler", flush=True
    )
    for event in sorted(events, key=lambda event: -event.self_cpu_time_total)[:SHOWN]:
        share, each = event.self_cpu_time_total / total, event.self_cpu_time_total / 1e3 / plan.local.steps
        print(f"  {100 * share:5.1f} %  {each:8.3f} ms a step  {event.count:5d} x  {event.key}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", default="multimnist,cifar10-mnist-b", help="comma-separated")
    parser.add_argument("--repeat", type=int, default=5, help="clients' rounds that are timed")
    arguments = parser.parse_args()
    for name in arguments.settings.split(","):
        measure(name, arguments.repeat)


if __name__ == "__main__":
    main()
