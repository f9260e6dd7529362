"""Programs that take turns, a round each, and the ratios of their rounds: separate runs drift too far to compare."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SIGN = "@@"
"""What a peer has to say starts with it; all else that it prints is its own affair."""


class Peer:
    """A program in a process of its own that plays a round whenever it is told to."""

    def __init__(self, name: str, command: Sequence[str | Path], log: Path, threads: int = 1) -> None:
        self.name = name
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}
        environment |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        # Ray's actors have to find the peers' modules too.
        environment |= {"PYTHONPATH": str(Path(__file__).parent / "peers"), "FLWR_HOME": str(log.parent / "flwr")}
        began = time.perf_counter()
        self._log = log.open("w")
        self._process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env=environment,
        )  # fmt: skip
        self.about = self._hear()
        self.start_up = time.perf_counter() - began

    def round(self) -> dict[str, Any]:
        """Let it play a round; what it says about it, with the seconds in between."""
        assert self._process.stdin is not None
        busy, began = busy_seconds(self._process.pid), time.perf_counter()
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        said = self._hear()
        spent = time.perf_counter() - began
        return {**said, "seconds": spent, "cpu": busy_seconds(self._process.pid) - busy}

    def stop(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(SIGN):
                return json.loads(line[len(SIGN) :])
        raise SystemExit(f"{self.name} ended early; its log is {self._log.name}")


def busy_seconds(process: int) -> float:
    """Seconds of all cores that a process and all that it started have used so far."""
    parents, used = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        parents[int(path.parent.name)] = int(fields[1])
        used[int(path.parent.name)] = int(fields[11]) + int(fields[12])
    tree, added = {process}, True
    while added:
        added = {child for child, parent in parents.items() if parent in tree} - tree
        tree |= added
    return sum(used.get(each, 0) for each in tree) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Table:
    """What the rounds of every peer took, by the clock and of all cores; `first` is the round that warmed it up."""

    seconds: dict[str, list[float]]
    cpu: dict[str, list[float]]
    first: dict[str, float]
    start_up: dict[str, float]

    def print(self, to: str) -> None:
        """For people: medians, and the ratios to one of the peers, round by round, with their quartiles."""
        print(f"{'':36s}{'s/round':>9s}{'from':>8s}{'to':>8s}{'CPU s':>8s}{'first':>8s}{'start':>8s}   "
              f"times {to}: by the clock, CPU")  # fmt: skip
        for name, values in self.seconds.items():
            clock, cores = (_ratios(table[name], table[to]) for table in (self.seconds, self.cpu))
            print(
                f"{name:36s}{statistics.median(values):9.3f}{min(values):8.3f}{max(values):8.3f}"
                f"{statistics.median(self.cpu[name]):8.3f}{self.first[name]:8.2f}{self.start_up[name]:8.1f}   "
                f"{clock}, {cores}"
            )
        sys.stdout.flush()


def _ratios(values: Sequence[float], to: Sequence[float]) -> str:
    low, middle, high = statistics.quantiles([a / b for a, b in zip(values, to, strict=True)], n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def take_turns(peers: Sequence[Peer], rounds: int) -> Table:
    """One round of warming up, then `rounds` rounds of each in turn; who begins changes from round to round."""
    first = {peer.name: peer.round()["seconds"] for peer in peers}
    played: dict[str, list[dict[str, Any]]] = {peer.name: [] for peer in peers}
    for number in range(rounds):
        for i in range(len(peers)):
            peer = peers[(i + number) % len(peers)]
            played[peer.name].append(peer.round())
    seconds, cpu = (
        {name: [each[key] for each in list_] for name, list_ in played.items()} for key in ("seconds", "cpu")
    )
    return Table(seconds, cpu, first, {peer.name: peer.start_up for peer in peers})
