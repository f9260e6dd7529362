"""Programs that take turns, one round each, and the ratios of their times; separate measurements drift too much."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SIGN = "@@"
"""The prefix of a peer's messages, as in `peers/messages.py`; other output is ignored."""


class PeerEnded(SystemExit):
    """A peer has ended before its answer."""


class Peer:
    """A program in a separate process that computes rounds on request.

    Args:
        name: Its name in tables.
        command: The command of the process.
        log: Its standard error.
        threads: Of OpenMP.
        packages: A folder with packages that are not installed, or take the place of installed ones.
        variables: Further environment variables.
        wait: Whether to wait until it can start a round. If not, call `await_start`.
        patience: The seconds that an answer may take; then the process is killed.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        threads: int = 1,
        packages: Path | None = None,
        variables: Mapping[str, str] | None = None,
        wait: bool = True,
        patience: float | None = None,
    ) -> None:
        self.name, self.log, self._patience = name, log, patience
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}
        environment |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        # Ray's actors need the peers' modules too. The folder comes before what the environment names.
        places = [str(Path(__file__).parent / "peers"), packages, os.environ.get("PYTHONPATH")]
        environment |= {"PYTHONPATH": os.pathsep.join(str(place) for place in places if place)}
        environment |= {"FLWR_HOME": str(log.parent / "flwr")} | dict(variables or {})
        self._began = time.perf_counter()
        self._log = log.open("w")
        self._process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env=environment, start_new_session=True,
        )  # fmt: skip
        self.about: dict[str, Any] = {}
        self.start_up = 0.0
        self.expired = False
        """Whether it was killed because an answer took too long."""
        if wait:
            self.await_start()

    def await_start(self) -> None:
        """Wait until the peer can start a round."""
        self.about = self._read_message()
        self.start_up = time.perf_counter() - self._began

    def round(self) -> dict[str, Any]:
        """Run one round; returns the peer's message with the seconds of the round."""
        busy, began = busy_seconds(self._process.pid), time.perf_counter()
        message = self._ask("1")
        spent = time.perf_counter() - began
        return {**message, "seconds": spent, "cpu": busy_seconds(self._process.pid) - busy}

    def rounds(self, count: int) -> list[float]:
        """Run rounds without a pause; returns the seconds of each, as measured by the peer."""
        return list(self._ask(str(count))["rounds"])

    def describe(self) -> dict[str, Any]:
        """What the peer says of its state, such as its memory."""
        return self._ask("describe")

    def stop(self, patience: float = 20) -> None:
        """End the peer; after some seconds its processes are killed."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            self._kill()
            self._process.wait()
        self._log.close()

    def _expire(self) -> None:
        self.expired = True
        self._kill()

    def _kill(self) -> None:
        """End the process and its descendants, which share its output."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _ask(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # there is no answer then either
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        return self._read_message()

    def _read_message(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        timer = threading.Timer(self._patience, self._expire) if self._patience else None
        if timer is not None:
            timer.start()
        try:
            for line in self._process.stdout:
                if line.startswith(SIGN):
                    return json.loads(line[len(SIGN) :])
        finally:
            if timer is not None:
                timer.cancel()
        raise PeerEnded(f"{self.name} ended early; its log is {self._log.name}")


def busy_seconds(process: int) -> float:
    """The CPU seconds of a process and its descendants so far."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        parents[int(path.parent.name)] = int(fields[1])
    tree, added = {process}, True
    while added:
        added = {child for child, parent in parents.items() if parent in tree} - tree
        tree |= added
    return sum(map(_used, tree))


def _used(process: int) -> float:
    """The CPU seconds of one process; its clock is finer than the ticks of /proc, which a short round has few of."""
    try:
        return time.clock_gettime((~process << 3) | 2)  # clock_getcpuclockid
    except OSError:  # it has just ended
        return 0.0


@dataclass(frozen=True)
class Table:
    """The times of all peers' rounds, in wall-clock and CPU seconds; `first` is the warm-up round."""

    seconds: dict[str, list[float]]
    cpu: dict[str, list[float]]
    first: dict[str, float]
    start_up: dict[str, float]

    def print(self, to: str) -> None:
        """Print medians, and the ratios to one of the peers, round by round, with their quartiles."""
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
    """One warm-up round, then `rounds` rounds of each in turn; the order changes from round to round."""
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
