"""Rounds of two versions of the package in turns, on this machine's cores, engine by engine.

    python benchmarks/trees.py OLD NEW [--setting digits] [--engines sequential,parallel,stacked] [--turns 12]
        [--rounds 10]

OLD and NEW are source trees, for example `git worktree add ../old COMMIT` and `.`. Every engine of every tree has its
own process. The CPU seconds of a process hardly depend on other load on the machine, so they are the measure for a
change of the code; wall-clock seconds are printed as well. A turn has several rounds, as a run has: the first round
after a pause finds the caches filled by the other process and is slower.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from taking_turns import Peer, take_turns
from workload import PEERS, machine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--setting", default="digits")
    parser.add_argument("--method", default="fedhv")
    parser.add_argument("--engines", default="sequential,parallel,stacked")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=10, help="rounds of a turn")
    arguments = parser.parse_args()
    print(machine(), flush=True)
    for engine in arguments.engines.split(","):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, PEERS / "tree_peer.py", arguments.setting, arguments.method, engine]
            command.append(str(arguments.rounds))
            peers = [
                Peer(f"{name}, {engine}", command, Path(folder) / f"{name}.log", packages=tree / "src")
                for name, tree in (("old", arguments.old.resolve()), ("new", arguments.new.resolve()))
            ]
            print(f"\n{arguments.setting}, {arguments.method}, {engine}: seconds of turns of {arguments.rounds} rounds")
            try:
                take_turns(peers, arguments.turns).print(to=peers[0].name)
            finally:
                for peer in peers:
                    peer.stop()


if __name__ == "__main__":
    main()
