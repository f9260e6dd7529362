"""A problem larger than the memory it may use: the inputs are a memory map and are read minibatch by minibatch.

    python benchmarks/memory_map.py [--gigabytes 4] [--rounds 20] [--engine sequential] [--folder FOLDER]

Writes a file of random inputs, makes a problem with 1,000 clients whose rows are spread over the file, trains two tasks
with FedHV, and prints the resident memory of all processes: anonymous memory, and pages of mapped files. Before that it
makes a problem from twelve clients' arrays in memory and prints the additional memory.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from torch import Tensor, nn
from workload import machine

import fedhv
from fedhv.simulation.observer import Observer
from fedhv.simulation.record import Round

FEATURES, CLIENTS, PARTICIPANTS = 1024, 1_000, 10
TASKS = (fedhv.classification("larger", 2), fedhv.regression("difference", 0.5))
BLOCK = 4096
"""Rows that are written at a time."""


class Net(nn.Module):
    """One hidden layer and two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(64, 2), nn.Linear(64, 1)])

    def forward(self, x: Tensor) -> list[Tensor]:
        shared = self.trunk(x)
        return [head(shared) for head in self.heads]


def write(path: Path, rows: int) -> list[np.ndarray]:
    """Rows of random numbers on disk. The targets are which of the first two is larger, and their difference."""
    rng = np.random.default_rng(0)
    first = np.empty((rows, 2), np.float32)
    base = rng.standard_normal((BLOCK, FEATURES), dtype=np.float32)
    with path.open("wb") as file:
        for start in range(0, rows, BLOCK):
            block = np.roll(base, int(rng.integers(FEATURES)), axis=1)[: rows - start]
            block[:, :2] = rng.standard_normal((len(block), 2), dtype=np.float32)
            first[start : start + BLOCK] = block[:, :2]
            file.write(block.tobytes())
    difference = first[:, 0] - first[:, 1]
    return [(difference > 0).astype(np.int64), difference]


def resident() -> dict[str, int]:
    """The MB of this process and its workers: in total, anonymous, and as pages of mapped files."""
    total = {"VmRSS": 0, "RssAnon": 0, "RssFile": 0}
    for process in (os.getpid(), *(worker.pid for worker in multiprocessing.active_children())):
        for line in Path("/proc", str(process), "status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in total:
                total[name] += int(value.split()[0]) // 1024
    return total


def highest() -> int:
    """The peak MB of this process since its start."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))


class Peak(Observer):
    """Keeps the largest resident memory after any round."""

    def __init__(self) -> None:
        self.most = resident()

    def round(self, round: Round) -> None:
        self.most = max(self.most, resident(), key=lambda each: each["VmRSS"])


def in_memory(rows: int = 60_000, clients: int = 12) -> None:
    """The memory of a problem in addition to its clients' arrays, during its construction and afterwards."""
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        parts = []
        for _ in range(clients):
            x = rng.standard_normal((rows // clients, FEATURES), dtype=np.float32).astype(dtype)
            parts.append((x, [(x[:, 0] > 0).astype(np.int64), x[:, 1].astype(np.float32)]))
        test = (parts[0][0][:100], [each[:100] for each in parts[0][1]])
        Path("/proc/self/clear_refs").write_text("5")  # the highest so far starts anew
        before = resident()["VmRSS"]
        problem = fedhv.Problem.from_clients(Net, TASKS, parts, test)
        held = sum(x.nbytes for x, _ in parts) / 2**20
        added, most = resident()["VmRSS"] - before, highest() - before
        print(
            f"{clients} clients, {held:.0f} MB of {np.dtype(dtype)} in memory: +{added} MB, at most +{most} MB",
            flush=True,
        )
        del problem, parts


def show(what: str, held: dict[str, int]) -> None:
    print(f"{what:<34}{held['VmRSS']:>8} MB{held['RssAnon']:>12} MB{held['RssFile']:>12} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--engine", default="sequential")
    parser.add_argument("--folder", default=None, help="where the file is written; it is removed at the end")
    options = parser.parse_args()
    rows = int(options.gigabytes * 2**30) // (4 * FEATURES)
    print(machine(), flush=True)
    apart = multiprocessing.get_context("fork").Process(target=in_memory)
    apart.start()
    apart.join()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder, "inputs.f32")
        targets = write(path, rows)
        print(f"{rows:,} rows of {FEATURES:,} numbers: {path.stat().st_size / 2**30:.2f} GiB on disk")
        print(f"{'':<34}{'resident':>11}{'of its own':>15}{'mapped':>15}")
        show("before", resident())
        mapped = np.memmap(path, np.float32, "r", shape=(rows, FEATURES))
        held_out = slice(rows - 10_000, None)
        benchmark = fedhv.Benchmark(
            name="memory map",
            model=Net,
            tasks=TASKS,
            train=fedhv.Examples.of(mapped[: rows - 10_000], [t[: rows - 10_000] for t in targets]),
            test=fedhv.Examples.of(mapped[held_out], [t[held_out] for t in targets]),
        )
        each = (rows - 10_000) // CLIENTS
        clients = fedhv.partition([each] * CLIENTS, rows - 10_000)
        problem = fedhv.Problem.divide(benchmark, clients)
        show("the problem is made", resident())
        peak, begin = Peak(), time.perf_counter()
        result = fedhv.run(
            problem,
            fedhv.FedHV(local_lr=0.05),
            rounds=options.rounds,
            engine=options.engine,
            device="cpu",
            reference=[2.0, 6.0],
            override=[f"federation.participants={PARTICIPANTS}"],
            observer=peak,
        )
        seconds = time.perf_counter() - begin
        show("most of all rounds", peak.most)
        print(f"{'most at any time, this process':<34}{highest():>8} MB")
        read = options.rounds * (PARTICIPANTS * (each + 320) + 10_000) * FEATURES * 4 / 2**30
        print(f"{options.rounds} rounds in {seconds:.1f} s, {read:.1f} GiB read; engine {options.engine}")
        print(f"accuracy {result.mean_accuracy:.1f} %, worst task {result.worst_accuracy:.1f} %")


if __name__ == "__main__":
    main()
