"""A FedHV round here and in the textbook loop, in turns, on this machine's cores.

    python benchmarks/textbook.py [--settings multimnist,cifar10-mnist-b] [--rounds 9] [--data FOLDER]

The loop runs in one process with as many threads as there are cores, and with one thread, which is the fairer
comparison (with the sequential engine) on a machine that has other work. All use the same model, examples, number of
steps, augmentation and reports; without the datasets, random images of the same shape.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from taking_turns import Peer, take_turns
from workload import PEERS, machine, write_workload


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", default="multimnist,cifar10-mnist-b")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--engines", default="parallel,sequential")
    parser.add_argument("--threads", help="Of the loop, comma-separated [default: 1 and one for every core]")
    parser.add_argument("--data")
    arguments = parser.parse_args()
    print(machine(), flush=True)
    cores = os.cpu_count() or 1
    counts = [int(text) for text in (arguments.threads or f"1,{cores}").split(",")]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for setting in arguments.settings.split(","):
            path, note = write_workload(setting, folder, arguments.data)
            peers = [
                Peer(f"fedhv, {engine}", [sys.executable, PEERS / "fedhv_peer.py", path, "fedhv", engine],
                     folder / f"{setting}-{engine}.log")
                for engine in arguments.engines.split(",")
            ]  # fmt: skip
            for threads in counts:
                command = [sys.executable, PEERS / "textbook_peer.py", path, "fedhv"]
                name = f"textbook loop, {threads} thread{'s' * (threads > 1)}"
                peers.append(Peer(name, command, folder / f"{setting}-textbook-{threads}.log", threads=threads))
            print(f"\n{setting}: a round of FedHV with reports and augmentation. {note}")
            take_turns(peers, arguments.rounds).print(to=peers[0].name)
            for peer in peers:
                peer.stop()


if __name__ == "__main__":
    main()
