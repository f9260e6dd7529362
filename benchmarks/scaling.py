"""The cost of a FedHV round as a function of clients N, participants M, local steps K, tasks m and parameters d.

    python benchmarks/scaling.py [--out results/performance] [--rounds 7]

Every curve varies one number. Its points take turns, one round each. N, K, m and d are measured in this process with
one thread, in CPU seconds, which depend least on other load. For M the additional memory of a round is measured as
well, for every engine in a separate process; for N the memory of the index lists.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from workload import machine

from fedhv import FedHV, LocalTraining, Problem, classification
from fedhv.engines import ENGINES, Sequential
from fedhv.engines.base import Engine
from fedhv.methods.weights import inverse_slack_weights
from fedhv.problem.partition import partition
from fedhv.problem.problem import Benchmark, Examples
from fedhv.protocol.requests import TrainReplies
from fedhv.simulation.rounds import Plan, initial_state, simulate
from fedhv.support.memory import held_memory

EXAMPLES, SIDE = 20_000, 28
N = (1_000, 10_000, 100_000, 1_000_000)
M = (10, 100, 1_000, 10_000)
K = (1, 2, 5, 10, 20, 40)
TASKS = (1, 2, 5, 10, 20)
HIDDEN = (8, 32, 128, 512, 2_048, 8_192)


class Perceptron(nn.Module):
    """One hidden layer and m heads: its size is one number."""

    def __init__(self, hidden: int, tasks: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, hidden), nn.ReLU())
        self.heads = nn.ModuleList(nn.Linear(hidden, 10) for _ in range(tasks))

    def forward(self, inputs: Tensor) -> list[Tensor]:
        shared = self.encoder(inputs)
        return [head(shared) for head in self.heads]


def problem(clients: int = 1_000, tasks: int = 2, hidden: int = 128, each: int = 64) -> Problem:
    """Random images, divided among clients at random; a client holds `each` of them."""
    rng = np.random.default_rng(0)
    pixels = rng.standard_normal((EXAMPLES, 1, SIDE, SIDE), dtype=np.float32)
    train = Examples.of(pixels, [rng.integers(0, 10, EXAMPLES) for _ in range(tasks)])
    kinds = tuple(classification(f"task {i}", 10) for i in range(tasks))
    benchmark = Benchmark("random", lambda: Perceptron(hidden, tasks), kinds, train, train[:100])
    return Problem.divide(benchmark, partition(np.full(clients, each), EXAMPLES))


def plan(participants: int = 10, steps: int = 10) -> Plan:
    return Plan(rounds=10**6, participants=participants, local=LocalTraining(steps, 32, 0.01), evaluate_every=0)


class Rounds:
    """Rounds of FedHV on an engine, one after the other, by some clock."""

    def __init__(self, engine: Engine, what: Plan, clock: Callable[[], float] = time.process_time) -> None:
        self.engine, self.plan, self.number, self.clock = engine, what, 0, clock
        self.method = FedHV(reference=(1e3,) * engine.layout.tasks)
        self.state = initial_state(engine, self.method, 0)

    def __call__(self) -> float:
        began = self.clock()
        upto = replace(self.plan, rounds=self.number + 2)
        self.state = next(simulate(self.engine, self.method, upto, self.state, self.number)).state
        self.number += 1
        return self.clock() - began


def in_turns(points: Sequence[Callable[[], float]], rounds: int) -> list[list[float]]:
    """Seconds of every point's rounds; each has one round to warm up."""
    for point in points:
        point()
    seconds: list[list[float]] = [[] for _ in points]
    for number in range(rounds):
        for i in range(len(points)):
            turn = (i + number) % len(points)
            seconds[turn].append(points[turn]())
    return seconds


def curve(name: str, values: Sequence[int], points: Sequence[Callable[[], float]], rounds: int) -> dict[str, Any]:
    measured = in_turns(points, rounds)
    first = measured[0]
    result = {"over": name, "values": list(values), "seconds": measured}
    result["ratio_to_first"] = [statistics.median(a / b for a, b in zip(each, first, strict=True)) for each in measured]
    for value, each, ratio in zip(values, measured, result["ratio_to_first"], strict=True):
        print(
            f"{name:4s}{value:>12,d}  {statistics.median(each):9.4f} s a round, {ratio:8.2f} times the first",
            flush=True,
        )
    return result


def population(rounds: int) -> dict[str, Any]:
    """Over N: the time of a round with ten participants, and the memory of the index lists."""
    points, bytes_, setup = [], [], []
    for n in N:
        began = time.perf_counter()
        each = problem(clients=n, each=32)
        setup.append(time.perf_counter() - began)
        bytes_.append(each.clients.indices.nbytes + each.clients.offsets.nbytes)
        points.append(Rounds(Sequential(each), plan()))
    result = curve("N", N, points, 4 * rounds)  # it is about a few per cent
    grown = []
    for point in points:
        before = held_memory()
        point()
        grown.append(held_memory() - before)
    return result | {"index_bytes": bytes_, "setup_seconds": setup, "memory_grown_by_a_round": grown}


def cohorts(connection: Any, name: str, participants: int) -> None:
    """In a separate process: seconds of a round with M participants, and its additional memory."""
    torch.set_num_threads(1)
    with ENGINES[name](problem(clients=20_000, hidden=32, each=8), "cpu") as engine:
        local = LocalTraining(1, 8, 0.01)
        Rounds(engine, replace(plan(2), local=local))()  # one-time imports are not a cost of a round
        next_round = Rounds(engine, replace(plan(participants), local=local), time.perf_counter)
        processes = [os.getpid(), *getattr(engine, "workers", [])]
        before = sum(map(proportional, processes))
        seconds = next_round()
        connection.send((seconds, sum(map(proportional, processes)) - before))


def proportional(process: int) -> int:
    """The proportional set size of a process: shared pages are divided among the processes that share them."""
    lines = Path("/proc", str(process), "smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def streaming() -> list[dict[str, Any]]:
    results = []
    for name in ("sequential", "parallel", "stacked"):
        seconds, memory = [], []
        for m in M:
            here, there = multiprocessing.Pipe()
            process = multiprocessing.get_context("spawn").Process(target=cohorts, args=(there, name, m))
            process.start()
            spent, held = here.recv()
            process.join()
            seconds.append(spent)
            memory.append(held)
            print(f"M   {m:>12,d}  {spent:9.3f} s a round, {held / 1e6:8.1f} MB more, {name}", flush=True)
        d = 32 * (SIDE * SIDE + 1) + 2 * 10 * 33
        results.append({"over": "M", "engine": name, "values": list(M), "seconds": seconds, "memory": memory,
                        "all_updates_bytes": [4 * d * m for m in M]})  # fmt: skip
    return results


def server() -> dict[str, Any]:
    """The server's own work for the weights, over M and m."""
    values: dict[str, list[float]] = {}
    for m in TASKS:
        values[str(m)] = []
        for count in M:
            reports = torch.rand(count, m)
            replies = TrainReplies(None, None, torch.zeros(1), reports)  # type: ignore[arg-type]

            def work(replies: TrainReplies = replies, m: int = m) -> None:
                inverse_slack_weights(replies.mean_report(), (1e3,) * m)

            work()
            times = []
            for _ in range(30):
                began = time.perf_counter()
                work()
                times.append(time.perf_counter() - began)
            values[str(m)].append(statistics.median(times))
    print("server, microseconds for M =", M)
    for name, each in values.items():
        print(f"  m = {name:>3s}  " + "  ".join(f"{1e6 * value:8.0f}" for value in each), flush=True)
    return {"over": "M, m", "participants": list(M), "tasks": list(TASKS), "seconds": values}


def figure(results: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "fedhv", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    fig, axes = plt.subplots(2, 3, figsize=(10, 5.6), layout="constrained")
    titles = {"N": "clients $N$ (10 take part)", "K": "local steps $K$", "m": "tasks $m$", "d": "parameters $d$"}
    for axis, (name, title) in zip((axes[0, 0], axes[0, 2], axes[1, 0], axes[1, 1]), titles.items(), strict=True):
        each = results[name]
        middle = [statistics.median(s) for s in each["seconds"]]
        axis.plot(each["values"], middle, "o-", color="#2a6f97", ms=4)
        low, high = [min(s) for s in each["seconds"]], [max(s) for s in each["seconds"]]
        axis.fill_between(each["values"], low, high, color="#2a6f97", alpha=0.15, lw=0)
        axis.set(xscale="log" if name in "Nd" else "linear", xlabel=title, ylabel="CPU seconds a round")
        if name == "d":
            axis.set_yscale("log")
        else:
            axis.set_ylim(0, 1.3 * max(high))
    colours, axis, other = ("#2a6f97", "#d1495b", "#edae49"), axes[0, 1], axes[1, 2]
    for colour, each in zip(colours, results["M"], strict=True):
        axis.plot(each["values"], each["seconds"], "o-", color=colour, ms=4, label=each["engine"])
        memory = [max(value, 1e5) / 1e6 for value in each["memory"]]
        other.plot(each["values"], memory, "o-", color=colour, ms=4, label=each["engine"])
    everyone = [value / 1e6 for value in results["M"][0]["all_updates_bytes"]]
    other.plot(M, everyone, "--", color="#888888", label="all M updates at once")
    axis.set(xscale="log", yscale="log", xlabel="participants $M$ ($K = 1$)", ylabel="seconds a round")
    other.set(xscale="log", yscale="log", xlabel="participants $M$ ($K = 1$)", ylabel="memory a round adds, MB")
    axis.legend(frameon=False, fontsize=8)
    other.set_ylim(top=3e4)  # room for the legend
    other.legend(frameon=False, fontsize=8, loc="upper left")
    fig.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    fig.savefig(path.with_suffix(".png"), dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/performance"))
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"machine": machine()}
    print(results["machine"], flush=True)
    results["M"] = streaming()
    results["server"] = server()
    results["N"] = population(arguments.rounds)
    print("    index lists:", ", ".join(f"{each / 1e6:.1f} MB" for each in results["N"]["index_bytes"]))
    print("    set up in:", ", ".join(f"{each:.2f} s" for each in results["N"]["setup_seconds"]), flush=True)
    one = problem()
    results["K"] = curve("K", K, [Rounds(Sequential(one), plan(steps=k)) for k in K], arguments.rounds)
    results["m"] = curve("m", TASKS, [Rounds(Sequential(problem(tasks=m)), plan()) for m in TASKS], arguments.rounds)
    engines = [Sequential(problem(hidden=hidden)) for hidden in HIDDEN]
    results["d"] = curve("d", [e.layout.d for e in engines], [Rounds(e, plan()) for e in engines], arguments.rounds)
    (arguments.out / "scaling.json").write_text(json.dumps(results, indent=1) + "\n")
    figure(results, arguments.out / "scaling")


if __name__ == "__main__":
    main()
