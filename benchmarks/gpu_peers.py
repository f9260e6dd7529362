"""Plain federated averaging on one GPU: FedHV, the textbook loop, pfl-research and FedJAX, in turns.

    python benchmarks/gpu_peers.py --out results/performance/h200-peers.jsonl [--packages FOLDER] [--check]

All have the same network, first model, examples (random images of the setting's shape, on the GPU), number of clients,
steps, batch size and learning rate, and compute in tf32. There is no augmentation and no evaluation. Every program has
its own process. A turn is one round that is not counted, after which caches and clocks are the program's own again, and
then the measured ones, each until the GPU has finished. pfl and fedjax are installed, or in the folder `--packages`.

A check of the results is part of the table: how far the model moved, and its loss on training examples, after the same
number of rounds. Programs draw different minibatches and dropout, so these agree only roughly. With `--check` nothing
is timed. In one round all clients take part, a minibatch is all that a client has, and there is no dropout; so all
programs compute the same model, and its distance from the textbook loop's is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from taking_turns import Peer, PeerEnded
from workload import PEERS, machine, write_workload

from fedhv.benchmarks.random_images import SHAPES
from fedhv.runs.config import load_setting

PRECISION = {"cpu": "float32", "cuda": "tf32"}

LARGEST = {"cpu": 1e-3, "cuda": 2e-2}
"""The largest distance from the textbook loop's model in `--check`, relative to its step.

Rounding gives about 2e-6, and more than 1e-4 where it changes which pixel of a single window is the maximum; programs
with channels last and first then differ in float32 and agree in float64. tf32 rounds to 5e-4 in every product.
"""

TEXTBOOK = "textbook loop"


@dataclass(frozen=True)
class Program:
    """A program to measure; `variables` are environment variables."""

    name: str
    command: Sequence[str | Path]
    variables: dict[str, str] = field(default_factory=dict)


def programs(path: Path, arguments: argparse.Namespace) -> list[Program]:
    """The programs to measure. The first is the one that others are compared with."""
    device, processes = arguments.device, arguments.processes
    own = [sys.executable, PEERS / "fedhv_peer.py", path, "plain", "stacked", "--device", device]
    own += ["--precision", PRECISION[device], "--compiled"]
    several = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    several += ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    # JAX would take three quarters of the GPU's memory, and the others need some.
    jax = {"JAX_PLATFORMS": "cpu"} if device == "cpu" else {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.2"}
    every = [
        Program("FedHV, compiled", [*own, "yes"]),
        Program("FedHV, as a run begins", [*own, "no"]),
        Program(TEXTBOOK, [sys.executable, PEERS / "textbook_gpu_peer.py", path, device]),
        Program("pfl-research, 1 process", [sys.executable, PEERS / "pfl_peer.py", path, device]),
        Program(
            f"pfl-research, {processes} processes",
            [*several, PEERS / "pfl_one_gpu_peer.py", path, device],
            {"GLOO_SOCKET_IFNAME": "lo"},
        ),
        Program("FedJAX", [sys.executable, PEERS / "fedjax_peer.py", path, device], jax),
    ]
    wanted = arguments.programs.lower().split(",")
    return [program for program in every if any(part in program.name.lower() for part in wanted)]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Running:
    """Programs that run at the same time and compute in turns. One that fails does not stop the others."""

    def __init__(self, path: Path, folder: Path, arguments: argparse.Namespace) -> None:
        self.errors: dict[str, str] = {}
        self._patience = arguments.patience
        self.peers = [
            Peer(
                program.name,
                program.command,
                folder / f"{number}.log",
                packages=arguments.packages,
                variables=program.variables,
                wait=False,
                patience=arguments.patience,
            )
            for number, program in enumerate(programs(path, arguments))
        ]
        self.each(Peer.await_start)

    def each(self, action: Callable[[Peer], Any], first: int = 0) -> dict[str, Any]:
        """The results of an action on every peer that has not failed, in the order that begins with number `first`."""
        results = {}
        for i in range(len(self.peers)):
            peer = self.peers[(first + i) % len(self.peers)]
            if peer.name not in self.errors:
                try:
                    results[peer.name] = action(peer)
                except PeerEnded:
                    lines = peer.log.read_text().splitlines()
                    end = [f"Error: no answer in {self._patience:g} s (--patience)"] if peer.expired else []
                    self.errors[peer.name] = "\n".join([*lines[-40:], *end]) or "ended without a message"
                    print(f"{peer.name} failed:\n{self.errors[peer.name]}", flush=True)
        return results

    def stop(self) -> None:
        for peer in self.peers:
            peer.stop(patience=0)


def read_model(path: str | Path, prefix: str = "") -> dict[str, torch.Tensor]:
    """The parameters in a file, by name."""
    with np.load(path) as kept:
        names = [name for name in kept if name.startswith(prefix)]
        return {name.removeprefix(prefix): torch.from_numpy(kept[name]) for name in names}


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return float(torch.stack([(one[name] - other[name]).norm() for name in one]).norm())


def training_loss(path: Path, parameters: dict[str, torch.Tensor], count: int = 512) -> float:
    """The mean loss of the first training examples, in evaluation mode."""
    with np.load(path) as kept:
        numbers = json.loads(str(kept["numbers"]))
        images, labels = torch.from_numpy(kept["images"][:count]), torch.from_numpy(kept["labels"][:count]).long()
    shape = SHAPES[load_setting(numbers["setting"]).benchmark]
    model = shape.model().eval()
    model.load_state_dict(parameters)
    with torch.no_grad():
        outputs = model(shape.prepare(images))
    return float(sum(F.cross_entropy(output, labels[:, i]) for i, output in enumerate(outputs))) / len(outputs)


def measure(setting: str, arguments: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """One record for every program."""
    path, _ = write_workload(setting, folder, None, random=True, overrides=arguments.set)
    running = Running(path, folder, arguments)
    try:
        first = running.each(lambda peer: peer.rounds(1)[0])
        times: dict[str, list[float]] = {peer.name: [] for peer in running.peers}
        for turn in range(arguments.turns):
            found = running.each(lambda peer: peer.rounds(1 + arguments.rounds)[1:], turn)
            for name, seconds in found.items():
                times[name] += seconds
            medians = [f"{name}: {1e3 * statistics.median(seconds):.1f}" for name, seconds in found.items()]
            print(f"{setting}, turn {turn + 1}, ms a round: {'; '.join(medians)}", flush=True)
        described = running.each(Peer.describe)
    finally:
        running.stop()
    start = read_model(path, "parameter ")
    records = []
    for peer in running.peers:
        record: dict[str, Any] = {"setting": setting, "program": peer.name, **peer.about.get("packages", {})}
        if peer.name in running.errors:
            records.append(record | {"error": running.errors[peer.name]})
            continue
        last = described[peer.name]
        model = read_model(last.pop("parameters"))
        record |= {
            "seconds": times[peer.name],
            "first": first[peer.name],
            "start": peer.start_up,
            "moved": distance(model, start),
            "loss": training_loss(path, model),
        }
        records.append(record | last)
    return records


def table(setting: str, records: Sequence[dict[str, Any]]) -> str:
    """Medians and quartiles in milliseconds, and the slowdown relative to the first program."""
    lines = [f"{setting:28s}{'ms a round':>11s}{'quartiles':>20s}{'slowdown':>10s}{'first, s':>10s}{'GiB':>8s}"
             f"{'moved':>9s}{'loss':>8s}"]  # fmt: skip
    own = statistics.median(records[0]["seconds"]) if "seconds" in records[0] else float("nan")
    for record in records:
        if "error" in record:
            said = record["error"].splitlines()
            why = [line for line in said if "Error" in line] or said  # torchrun writes more after it
            lines.append(f"{record['program']:28s} failed: {why[-1][:100]}")
            continue
        low, middle, high = (1e3 * each for each in statistics.quantiles(record["seconds"], n=4))
        memory = "–" if record["memory"] is None else f"{record['memory'] / 2**30:.2f}"
        lines.append(
            f"{record['program']:28s}{middle:11.2f}{f'{low:.2f} to {high:.2f}':>20s}{middle / 1e3 / own:10.2f}"
            f"{record['first']:10.1f}{memory:>8s}{record['moved']:9.3f}{record['loss']:8.4f}"
        )
        lines += [f"    {note}" for note in record.get("notes", ())]
    return "\n".join(lines)


def check(setting: str, arguments: argparse.Namespace, folder: Path) -> bool:
    """Print the distance of every program's model from the textbook loop's; returns whether all are small."""
    batch = load_setting(setting, arguments.set).training.batch_size
    # In more steps, rounding changes more maxima and signs, and the models drift apart.
    same = ["training.local_steps=3", "federation.clients=5", "federation.participants=5"]
    same.append(f"federation.samples_per_client={batch}")
    path, _ = write_workload(setting, folder, None, random=True, overrides=[*arguments.set, *same], dropout=False)
    running = Running(path, folder, arguments)
    try:
        running.each(lambda peer: peer.rounds(1))
        models = {name: read_model(last["parameters"]) for name, last in running.each(Peer.describe).items()}
    finally:
        running.stop()
    if TEXTBOOK not in models:
        return False
    moved = distance(models[TEXTBOOK], read_model(path, "parameter "))
    print(f"{setting}: a round of five clients moves the textbook loop's model by {moved:.4f}")
    agree = not running.errors
    for name, model in models.items():
        relative = distance(model, models[TEXTBOOK]) / moved
        agree &= relative <= LARGEST[arguments.device]
        print(f"    {name:28s} distance from it, relative: {relative:.1e}", flush=True)
    return agree


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", default="cifar10-mnist-b,multimnist")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--programs", default="", help="parts of the programs' names, comma-separated; all without it")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds of a turn")
    parser.add_argument("--processes", type=int, default=5, help="of pfl-research, where it has several")
    parser.add_argument("--patience", type=float, default=90, help="seconds for a start, a first round or a turn")
    parser.add_argument("--packages", type=Path, help="a folder with pfl, fedjax and what they need")
    parser.add_argument("--set", action="append", default=[], help="section.key=value, as on the command line")
    parser.add_argument("--out", type=Path, help="a file for JSON lines")
    parser.add_argument("--check", action="store_true", help="compare the models instead of the times")
    arguments = parser.parse_args()
    packages = arguments.packages
    if packages is not None and not packages.is_dir():
        parser.error(f"--packages should be a folder. Found '{packages}'.")
    arguments.packages = packages and packages.resolve()
    where = torch.cuda.get_device_name() if arguments.device == "cuda" else "no GPU"
    print(f"{where}; {machine()}", flush=True)
    tables, good = [], True
    with tempfile.TemporaryDirectory() as temporary:
        for setting in arguments.settings.split(","):
            folder = Path(temporary) / setting
            folder.mkdir()
            if arguments.check:
                good &= check(setting, arguments, folder)
                continue
            records = measure(setting, arguments, folder)
            good &= not any("error" in record for record in records)
            tables.append(table(setting, records))
            print(tables[-1], flush=True)
            if arguments.out is not None:
                with arguments.out.open("a") as out:
                    for record in records:
                        out.write(json.dumps({"device": where, "cores": os.cpu_count(), **record}) + "\n")
    if not arguments.check:
        count, precision = arguments.turns * arguments.rounds, PRECISION[arguments.device]
        print(f"\n{where}: plain federated averaging, {precision}, {count} rounds each\n" + "\n\n".join(tables))
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
