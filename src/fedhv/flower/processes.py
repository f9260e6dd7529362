"""Child processes that end with this process: each has its own group and an environment variable that marks it."""

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
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from fedhv.support.errors import FedHVError, InputError
from fedhv.support.signals import deferred_signals

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""
STARTING = 300.0
"""The time limit for a server to open its port, in seconds."""
PORTS = range(20000, 32000)
MARK = "FEDHV_PROCESSES"
"""The environment variable that identifies all started processes, even if their parent has changed."""
_DIE_WITH_PARENT = 1
"""Linux' PR_SET_PDEATHSIG."""


class Processes:
    """Starts processes, checks whether they run, and ends all of them.

    Ctrl-C takes effect after the start of a process, when it can be ended.
    """

    def __init__(self, environment: Mapping[str, str], logs: Path) -> None:
        if not hasattr(os, "killpg"):
            raise InputError("This command needs groups of processes, which Windows does not have. Use Linux or WSL.")
        self.logs, self.mark = logs, uuid.uuid4().hex
        self.environment = {**environment, MARK: self.mark}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str]) -> None:
        """Start a process. Its output goes to a file."""
        with self.log(name).open("ab") as log, deferred_signals():
            self.running[name] = self._popen(command, log, subprocess.STDOUT)

    def ask(self, command: Sequence[str], seconds: float) -> tuple[int, str, str]:
        """Run a command with a time limit; returns its exit code, output and error output."""
        asked: subprocess.Popen[bytes] | None = None
        try:
            with deferred_signals():
                asked = self._popen(command, subprocess.PIPE, subprocess.PIPE)
            out, err = asked.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise FedHVError(f"{' '.join(command[:2])} did not end within {seconds:g} s.") from None
        finally:
            if asked is not None:
                asked.kill()  # has no effect on an ended process
                with asked:
                    pass  # closes its pipes and waits for it
        return asked.returncode, out.decode(errors="replace"), err.decode(errors="replace")

    def _popen(self, command: Sequence[str], out: int | IO[bytes], err: int) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                [executable(command[0]), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=self.environment,
                start_new_session=True,  # a separate group, which can be ended as a whole and does not receive Ctrl-C
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        except OSError as error:
            raise FedHVError(f"{command[0]} could not be started: {error.strerror or error}.") from None

    def log(self, name: str) -> Path:
        """The output file of a process."""
        return self.logs / f"{name}.log"

    def tail(self, name: str, lines: int = 8) -> str:
        """The last lines of a process's output."""
        try:
            text = self.log(name).read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.strip().splitlines()[-lines:])

    def dead(self) -> list[str]:
        """The names of ended processes."""
        return [name for name, process in self.running.items() if process.poll() is not None]

    def wait_for_port(self, name: str, port: int, host: str = "127.0.0.1") -> None:
        """Wait until a process listens, up to the time limit."""
        end = time.monotonic() + STARTING
        while time.monotonic() < end:
            if self.running[name].poll() is not None:
                raise FedHVError(f"{name} ended while it started:\n{self.tail(name)}")
            with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
                return
            time.sleep(0.1)
        raise FedHVError(f"{name} did not open its port {port} within {STARTING:g} s:\n{self.tail(name)}")

    def end(self) -> None:
        """Send SIGTERM to all processes, wait, then kill them and all processes that they started."""
        processes, self.running = list(self.running.values()), {}
        try:
            for process in processes:
                _signal(process.pid, signal.SIGTERM)
            end = time.monotonic() + GRACE
            while time.monotonic() < end and any(process.poll() is None for process in processes):
                time.sleep(0.05)
        finally:  # a second Ctrl-C only shortens the wait
            for process in processes:
                _signal(process.pid, signal.SIGKILL)
            for process in processes:
                process.wait()
            end = time.monotonic() + GRACE
            while time.monotonic() < end and (left := _processes_with(self.mark)):
                for pid in left:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.01)


def _processes_with(mark: str) -> list[int]:
    """The processes with this mark; empty on systems other than Linux.

    Groups do not suffice: a SuperLink gives its SuperExec a separate group, and a process can start another one while
    it is ending.
    """
    found, sought = [], f"{MARK}={mark}".encode()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if sought in environ.read_bytes().split(b"\0"):  # a zombie has no environment any more
                found.append(int(environ.parent.name))
    return found


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGTERM)


def executable(name: str) -> str:
    """The path of a command of this Python environment, which need not be activated."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else name


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Free ports, below the range of outgoing connections."""
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
        raise FedHVError(f"Expected {count} free ports from {PORTS.start} to {PORTS.stop} on {host}. Found fewer.")
    finally:
        for each in sockets:
            each.close()
