"""Processes that do not outlive us: each leads a group of its own, and whole groups are ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedhv.errors import FedHVError

GRACE = 5.0
"""Seconds between asking a process to end and making it end."""
STARTING = 90.0
"""Seconds that a server has to open its port."""
PORTS = range(20000, 32000)
_DIE_WITH_PARENT = 1
"""Linux' PR_SET_PDEATHSIG."""


class Processes:
    """Starts processes, watches them, and ends them all."""

    def __init__(self, environment: Mapping[str, str], logs: Path) -> None:
        self.environment, self.logs = dict(environment), logs
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a process in a group of its own; what it prints goes to a file."""
        with self.log(name).open("ab") as log:
            try:
                started = subprocess.Popen(
                    [executable(command[0]), *command[1:]],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self.environment,
                    start_new_session=True,  # a group that can be ended as a whole; Ctrl-C reaches us alone
                    preexec_fn=_die_with_parent if sys.platform == "linux" else None,
                )
            except OSError as error:
                raise FedHVError(f"{command[0]} could not be started: {error.strerror or error}.") from None
        self.running[name] = started
        return started

    def log(self, name: str) -> Path:
        """Where a process prints."""
        return self.logs / f"{name}.log"

    def tail(self, name: str, lines: int = 8) -> str:
        """The last lines that a process printed."""
        try:
            text = self.log(name).read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.strip().splitlines()[-lines:])

    def dead(self) -> list[str]:
        """Those that have ended."""
        return [name for name, process in self.running.items() if process.poll() is not None]

    def wait_for_port(self, name: str, port: int, host: str = "127.0.0.1") -> None:
        """Wait until a process listens, within bounds."""
        end = time.monotonic() + STARTING
        while time.monotonic() < end:
            if self.running[name].poll() is not None:
                raise FedHVError(f"{name} ended while it started:\n{self.tail(name)}")
            with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
                return
            time.sleep(0.1)
        raise FedHVError(f"{name} did not open its port {port} within {STARTING:g} s:\n{self.tail(name)}")

    def end(self) -> None:
        """End them all, and everything that they started."""
        processes, self.running = list(self.running.values()), {}
        _end(processes)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask whole groups to end, wait a little, then make them."""
    groups = _groups({process.pid for process in processes})
    try:
        for process in processes:
            _signal(process.pid, signal.SIGTERM)
        end = time.monotonic() + GRACE
        while time.monotonic() < end and any(process.poll() is None for process in processes):
            time.sleep(0.05)
    finally:  # a second Ctrl-C only shortens the wait
        for group in groups:
            _signal(group, signal.SIGKILL)
        for process in processes:
            process.wait()
        end = time.monotonic() + GRACE
        while time.monotonic() < end and any(_there(group) for group in groups):
            time.sleep(0.01)  # the leader is gone; what it had started goes a moment later


def _groups(leaders: set[int]) -> set[int]:
    """The groups of these processes and of all that they started.

    A SuperLink gives its SuperExec a group of its own, which outlives it for a while where it is killed.
    """
    children: dict[int, list[tuple[int, int]]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):  # nothing on other systems than Linux
        with contextlib.suppress(OSError):
            _, parent, its_group = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
            children.setdefault(int(parent), []).append((int(stat.parent.name), int(its_group)))
    groups, family = set(leaders), list(leaders)
    while family:
        for pid, group in children.get(family.pop(), []):
            groups.add(group)
            family.append(pid)
    return groups


def _there(group: int) -> bool:
    """Whether anything is left of a group."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGTERM)


def executable(name: str) -> str:
    """A command of this Python environment, activated or not."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else name


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports that nobody uses, from below the range that outgoing connections take theirs from."""
    choose, sockets, found = random.SystemRandom(), [], []
    try:
        for _ in range(50 * count):
            port = choose.choice(PORTS)
            each = socket.socket()
            sockets.append(each)
            with contextlib.suppress(OSError):
                each.bind((host, port))
                found.append(port)
            if len(found) == count:
                return found
        raise FedHVError(f"No {count} free ports between {PORTS.start} and {PORTS.stop} were found on {host}.")
    finally:
        for each in sockets:
            each.close()
