"""The cost of a round on a Ray cluster with one and two workers, and the costs of its parts.

    python benchmarks/ray_workers.py [--out results/performance] [--rounds 3]

A FedHV round of 10 and 1,000 clients on the sequential engine and on `ray` with one and two workers, all on this
machine. They take turns, one round each. CPU seconds are those of this process, its workers and all processes of Ray;
they depend least on other load. Ray's workers have the priority of other programs here; by default they have a lower
one. Every engine's model is compared bit for bit with the sequential engine's. Then the parts of a round: an empty
task, a model on its way to a worker, and a sum on its way back, for four sizes of a model. Last, one round of 100,000
clients that draw their updates instead of training: what remains is the cost of the engine.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scaling import Perceptron
from torch import Tensor
from workload import machine

from fedhv import FedHV, LocalTraining, Method, Problem, Reply, Request, State, classification
from fedhv.engines import Ray, Sequential
from fedhv.engines.base import Engine
from fedhv.problem.partition import partition
from fedhv.problem.problem import Benchmark, Examples
from fedhv.problem.random import Purpose
from fedhv.protocol.fields import tensor
from fedhv.protocol.script import Member, Script
from fedhv.protocol.sums import Partial
from fedhv.simulation.rounds import Plan, simulate
from fedhv.support.ray.connection import start_cluster
from fedhv.support.ray.messages import pack, unpack

EXAMPLES = 20_000
TURNS = (10, 1_000)
MANY = 100_000
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
TICKS = os.sysconf("SC_CLK_TCK")


def problem(hidden: int) -> Problem:
    """Random images of 28 × 28 pixels, eight for each of 100,000 clients, and two tasks."""
    rng = np.random.default_rng(0)
    pixels = rng.standard_normal((EXAMPLES, 1, 28, 28), dtype=np.float32)
    train = Examples.of(pixels, [rng.integers(0, 10, EXAMPLES) for _ in range(2)])
    kinds = tuple(classification(f"task {i}", 10) for i in range(2))
    benchmark = Benchmark("random", lambda: Perceptron(hidden, 2), kinds, train, train[:100])
    return Problem.divide(benchmark, partition(np.full(MANY, 8), EXAMPLES))


def cpu_seconds() -> float:
    """Of this process and all that it started, and those that these started, as long as they live."""
    parents, spent = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                values = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(folder.name)] = int(values[1])
            spent[int(folder.name)] = (int(values[11]) + int(values[12])) / TICKS
    mine = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(spent[process] for process in mine)


@dataclass(frozen=True)
class DrawnReply(Reply):
    update: Tensor = tensor("d", bound="update")


@dataclass(frozen=True)
class Drawn(Request):
    """A reply without training."""

    reply = DrawnReply
    trains = True
    model: Tensor = tensor("d")

    def answer(self, me: Member) -> Script:
        draws = me.stream(Purpose.MINIBATCHES)
        return DrawnReply(torch.from_numpy(draws.standard_normal(len(self.model), dtype=np.float32)))
        yield


@dataclass(frozen=True, kw_only=True)
class Draws(Method):
    """Adds what clients draw."""

    name = "draws"

    def round(self, state: State) -> Any:
        replies = yield Drawn(state.model)
        return State(state.model + replies.means["update"], state.weights)


class Rounds:
    """Rounds of FedHV on an engine, one after the other."""

    def __init__(self, engine: Engine, method: Method, participants: int, local: tuple[int, int]) -> None:
        plan = Plan(10**6, participants, LocalTraining(*local, 0.01), evaluate_every=0)
        self.rounds = simulate(engine, method, plan)
        self.model = torch.empty(0)

    def next(self) -> tuple[float, float]:
        """Wall-clock seconds and CPU seconds of the next round."""
        wall, spent = time.perf_counter(), cpu_seconds()
        self.model = next(self.rounds).state.model
        return time.perf_counter() - wall, cpu_seconds() - spent


def quartiles(values: list[float]) -> str:
    if len(values) < 3:
        return f"{statistics.median(values):9.3f}"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:9.3f} ({low:.3f} to {high:.3f})"


def compare(
    engines: dict[str, Engine],
    method: Method,
    participants: int,
    local: tuple[int, int],
    count: int,
    warm: int,
    say: Callable[[str], None],
) -> None:
    d, (steps, examples) = next(iter(engines.values())).layout.d, local
    work = f"{steps} step(s) of {examples} example(s)"
    say(f"\n{method.label}, {participants:,} clients, {work}, d = {d:,}: {count} round(s)")
    played = {name: Rounds(engine, method, participants, local) for name, engine in engines.items()}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
    for number in range(warm + count):
        for name, rounds in played.items():
            spent = rounds.next()
            if number >= warm:
                found[name].append(spent)
            if number == warm + count - 1:
                same = torch.equal(rounds.model, played["sequential"].model)  # which is the first
                wall, cpu = ([each[i] for each in found[name]] for i in range(2))
                bits = "same bits" if same else "OTHER BITS"
                say(f"  {name:11s} wall {quartiles(wall):28s} CPU {quartiles(cpu):28s} {bits}")


def parts(say: Callable[[str], None]) -> None:
    """The parts of a round on Ray, in milliseconds: medians of 20."""
    import ray

    @ray.remote(num_cpus=0)
    class Echo:
        def nothing(self) -> None: ...

        def read(self, message: Any) -> None:
            unpack(message)

        def total(self, d: int) -> Any:
            return pack(Partial(totals={"update": torch.ones(d)}))

    actor = Echo.remote()
    ray.get(actor.nothing.remote())

    def timed(action: Callable[[], Any]) -> float:
        seconds = []
        for _ in range(20):
            start = time.perf_counter()
            action()
            seconds.append(time.perf_counter() - start)
        return 1e3 * statistics.median(seconds)

    say("\nparts of a round, ms")
    say(f"  an empty task, there and back {timed(lambda: ray.get(actor.nothing.remote())):8.2f}")
    names = ("model packed and stored", "read by a worker", "sum fetched", "added")
    say(f"  {'parameters':>12s} {names[0]:>24s} {names[1]:>17s} {names[2]:>12s} {names[3]:>8s}")
    for d in SIZES:
        model, whole = torch.ones(d), Partial(totals={"update": torch.zeros(d)})
        stored = timed(lambda model=model: ray.put(pack(model)))
        reference = ray.put(pack(model))
        read = timed(lambda reference=reference: ray.get(actor.read.remote(reference)))
        ready = [actor.total.remote(d) for _ in range(20)]
        ray.wait(ready, num_returns=len(ready))
        following = iter(ready)
        arrived: list[Partial] = []
        fetched = timed(lambda following=following, arrived=arrived: arrived.append(unpack(ray.get(next(following)))))
        sums = iter(arrived)
        added = timed(lambda whole=whole, sums=sums: whole.add(next(sums)))
        say(f"  {d:12,d} {stored:24.2f} {read:17.2f} {fetched:12.2f} {added:8.2f}")
    ray.kill(actor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()

    def say(line: str) -> None:
        print(line, flush=True)
        if arguments.out:
            with (arguments.out / "ray-workers.txt").open("a") as file:
                file.write(line + "\n")

    torch.set_num_threads(1)
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  # Ray spells it like this
    if arguments.out:
        (arguments.out / "ray-workers.txt").unlink(missing_ok=True)
    start_cluster(cores=3)  # for two engines with three workers, which take turns
    measure(arguments.rounds, say)


def measure(count: int, say: Callable[[str], None]) -> None:
    import ray

    say(f"{machine()}\nRay {ray.__version__}; seconds of a round, quartiles in brackets")
    say("10 clients: after a round for warming up")
    for hidden in (128, 8):
        world = problem(hidden)
        with Ray(world, workers=1) as one, Ray(world, workers=2) as two:
            engines: dict[str, Engine] = {"sequential": Sequential(world), "ray, 1": one, "ray, 2": two}
            for participants in TURNS:
                warm = int(participants == TURNS[0])
                compare(engines, FedHV(reference=(1e3, 1e3), report=1), participants, (1, 8), count, warm, say)
            if hidden == 128:
                parts(say)
                continue
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            compare(engines, Draws(), MANY, (1, 1), 1, 0, say)
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
            updates = 4 * two.layout.d * MANY / 2**20
            say(f"  the server's memory grew by {grown:.0f} MiB in this; all updates are {updates:,.0f} MiB")
    say(f"\nload at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
