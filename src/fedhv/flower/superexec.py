"""A SuperExec whose app processes begin with torch and FedHV already imported.

Flower starts a process for every message to a node. A SuperNode with `--isolation process` leaves this to a SuperExec
beside it. Flower's own SuperExec starts a new `flwr-clientapp`, which first imports Flower, torch and FedHV. This one
imports them once and forks. Every message still has its own process, and a process loads the app, which may be
different in every run, after the fork.

Flower's loop asks the SuperNode for tasks; only the start of a process is ours. One process forks all apps, also those
of several SuperNodes. It imports and forks, and has neither threads nor connections that a forked process would share.

A task that is taken has to give a sign of life within 30 seconds. So no more are taken than the machine can compute at
the same time; the others wait at their SuperNodes.
"""

from __future__ import annotations

import contextlib
import gc
import json
import mmap
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from fedhv.support.cores import usable_cores
from fedhv.support.errors import InputError, printable

IMPORTED = ("flwr.supernode.runtime.run_clientapp", "torch", "fedhv.flower.client", "fedhv.runs.resolve")
"""What a node's app needs."""
SHORT_PAUSE, LONGEST_PAUSE = 0.1, 1.0
"""Seconds between two checks for ended processes, while apps run and otherwise."""
APPS_PER_CORE, LEAST_APPS = 2, 4
"""How many apps run at the same time."""
ENDING = (signal.SIGTERM, signal.SIGINT)
"""The signals that end the command, in good order: a service that is stopped has not failed."""
APP, LOOP = "flwr-clientapp", "superexec"
"""The names of the processes, as `ps` and `top` show them."""


def serve(addresses: Sequence[str]) -> NoReturn:
    """Start the apps of the SuperNodes whose Runtime APIs have these addresses, until a signal ends this process."""
    if not hasattr(os, "fork"):
        raise InputError("This command forks processes, which Windows cannot do. Leave out `--isolation process`.")
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise InputError(f"A Runtime API has an address such as 127.0.0.1:9094. Found '{printable(address)}'.")
    for number in ENDING:
        signal.signal(number, _end)
    for module in IMPORTED:
        import_module(module)
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy the memory that all of them share
    tasks, channel = os.pipe()
    running, apps = Running(max(LEAST_APPS, APPS_PER_CORE * usable_cores())), set[int]()
    loops = {_fork(LOOP, _ask_for_tasks, address, channel, running): address for address in addresses}
    unread = b""
    while True:
        if select.select([tasks], [], [], SHORT_PAUSE if apps else LONGEST_PAUSE)[0]:
            *lines, unread = (unread + os.read(tasks, select.PIPE_BUF)).split(b"\n")
            apps |= {_fork(APP, _answer, json.loads(line)) for line in lines}
        for ended in _ended():
            apps.discard(ended)
            if ended in loops:  # Flower's loop ends after an error
                time.sleep(LONGEST_PAUSE)
                address = loops.pop(ended)
                loops[_fork(LOOP, _ask_for_tasks, address, channel, running)] = address
        running.count = len(apps)


class Running:
    """The number of running apps, in memory that forked processes share."""

    def __init__(self, most: int) -> None:
        self._memory, self._most = mmap.mmap(-1, 4), most

    @property
    def count(self) -> int:
        """Written by the process that forks."""
        return int.from_bytes(self._memory[:4], "little")

    @count.setter
    def count(self, value: int) -> None:
        self._memory[:4] = value.to_bytes(4, "little")

    @property
    def full(self) -> bool:
        """Whether there are as many as the machine can compute at the same time."""
        return self.count >= self._most


class Forwarding:
    """Flower's interface of an executor. It sends tasks to the process that forks."""

    def __init__(self, channel: int, parent: int, running: Running) -> None:
        self._channel, self._parent, self._running = channel, parent, running

    def get_eligible_capacity(self, supported_task_types: set[Any], **_: Any) -> tuple[set[Any], set[str]]:
        """Take ClientApps only, and none while enough of them run."""
        from flwr.supercore.constant import TaskType

        return set() if self._running.full else supported_task_types & {TaskType.CLIENT_APP}, set()

    def wait_for_capacity(self, *_: Any, **__: Any) -> None:
        """Nothing: Flower's loop checks for tasks at intervals."""

    def launch(self, spec: Any) -> Any:
        """Let the app of a task be started."""
        from flwr.supercore.superexec.executor import LaunchResult

        task = {
            "runtime_api_address": spec.runtime_api_address,
            "token": spec.token,
            "insecure": spec.insecure,
            "parent_pid": self._parent,
            "runtime_dependency_install": spec.runtime_dependency_install,
        }
        line = json.dumps(task).encode() + b"\n"
        if len(line) > select.PIPE_BUF:  # longer ones of several loops could be mixed
            return LaunchResult.failed(f"the task's description has {len(line)} bytes")
        os.write(self._channel, line)
        return LaunchResult.accepted()

    def reconcile(self) -> None:
        """Nothing to maintain."""

    def close(self) -> None:
        """Nothing to release."""


def _ask_for_tasks(address: str, channel: int, running: Running) -> None:
    """Flower's loop for one SuperNode."""
    loop = import_module("flwr.supercore.superexec.run_superexec")
    parent = os.getppid()
    executor = Forwarding(channel, parent, running)
    loop.__dict__["get_executor"] = lambda *_, **__: executor  # Flower has no option for another one
    loop.run_superexec(runtime_api_address=address, insecure=True, parent_pid=parent)


def _answer(task: dict[str, Any]) -> None:
    """Flower's process for one message."""
    from flwr.supernode.runtime.run_clientapp import run_clientapp

    run_clientapp(certificates=None, **task)


def _fork(name: str, work: Callable[..., None], *arguments: Any) -> int:
    """A process that does this work and ends."""
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        return pid
    code = 1
    try:
        for number in ENDING:
            signal.signal(number, signal.SIG_DFL)
        with contextlib.suppress(OSError):  # Linux only
            Path("/proc/self/comm").write_text(name)
        work(*arguments)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


def _ended() -> list[int]:
    """The processes that have ended since the last call."""
    found: list[int] = []
    with contextlib.suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            found.append(pid)
    return found
