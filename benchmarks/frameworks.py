"""Plain federated averaging here, in pfl-research and in Flower's simulation on Ray, in turns, on this machine's cores.

    python benchmarks/frameworks.py [--settings multimnist,cifar10-mnist-b] [--rounds 9] [--cache FOLDER]

All use the same model, examples, cohort size, steps and torch. pfl-research runs in its best configuration, one
process per core, images and weights channels last, the examples normalised and in memory. Flower runs twice: tuned in
the same way, and as in its first tutorial (NCHW, a DataLoader and a new model for every client). Their environments are
created in the cache folder at first use, separate from this project's.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from taking_turns import Peer, take_turns
from workload import PEERS, TORCH, environment, installed, machine, write_workload

PFL = ["pfl==0.6.0", "numpy<3", TORCH]
FLOWER = ["flwr[simulation]==1.41.0", "numpy<3", TORCH]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", default="multimnist,cifar10-mnist-b")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--with", dest="others", default="pfl,flower", help="pfl, flower or both")
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/fedhv/benchmarks").expanduser())
    parser.add_argument("--data")
    arguments = parser.parse_args()
    cores, others = os.cpu_count() or 1, arguments.others.split(",")
    print(machine(), flush=True)
    pythons = {}
    for name, requirements, packages in (("pfl", PFL, ("pfl", "torch")), ("flower", FLOWER, ("flwr", "ray", "torch"))):
        if name in others:
            pythons[name] = environment(arguments.cache, name, requirements)
            print(f"{name}: {installed(pythons[name], *packages)}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for setting in arguments.settings.split(","):
            path, note = write_workload(setting, folder, arguments.data)
            command: list[str | Path] = [sys.executable, PEERS / "fedhv_peer.py", path, "plain", "parallel"]
            peers = [Peer("fedhv, parallel", command, folder / f"{setting}-fedhv.log")]
            if "pfl" in pythons:
                command = [pythons["pfl"].parent / "torchrun", "--nproc-per-node", str(cores)]
                command += [PEERS / "pfl_peer.py", path]
                peers.append(Peer(f"pfl-research, {cores} processes", command, folder / f"{setting}-pfl.log"))
            if "flower" in pythons:
                for style in ("tuned", "tutorial"):
                    command = [pythons["flower"], PEERS / "flower_peer.py", path, style]
                    log = folder / f"{setting}-flower-{style}.log"
                    peers.append(Peer(f"Flower on Ray, {cores} actors, {style}", command, log))
            print(f"\n{setting}: a round of plain federated averaging. {note}")
            try:
                take_turns(peers, arguments.rounds).print(to=peers[0].name)
            finally:
                for peer in peers:
                    peer.stop()


if __name__ == "__main__":
    main()
