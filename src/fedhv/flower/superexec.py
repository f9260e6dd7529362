"""A SuperExec whose app processes begin with torch and FedHV already imported.

Flower starts a process for every message to a node. A SuperNode with `--isolation process` leaves this to a SuperExec
beside it. Flower's own SuperExec starts a new `flwr-clientapp`, which first imports Flower, torch and FedHV. This one
imports them once and forks. Every message still has its own process, and a process loads the app, which may be
different in every run, after the fork.

Flower's loop asks the SuperNode for tasks; only the start of a process is ours. One process forks all apps, also those
of several SuperNodes. It imports and forks, and has neither threads nor connections that a forked process would share.
"""

from __future__ import annotations

import contextlib
import gc
import json
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

from fedhv.support.errors import InputError, printable

IMPORTED = ("flwr.supernode.runtime.run_clientapp", "torch", "fedhv.flower.client", "fedhv.runs.resolve")
"""What a node's app needs."""
LONGEST_PAUSE = 1.0
"""Seconds between two checks for ended processes."""
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
    loops = {_fork(LOOP, _ask_for_tasks, address, channel): address for address in addresses}
    unread = b""
    while True:
        if select.select([tasks], [], [], LONGEST_PAUSE)[0]:
            *lines, unread = (unread + os.read(tasks, select.PIPE_BUF)).split(b"\n")
            for line in lines:
                _fork(APP, _answer, json.loads(line))
        for ended in _ended():
            if ended in loops:  # Flower's loop ends after an error
                time.sleep(LONGEST_PAUSE)
                address = loops.pop(ended)
                loops[_fork(LOOP, _ask_for_tasks, address, channel)] = address


class Forwarding:
    """Flower's interface of an executor. It sends tasks to the process that forks."""

    def __init__(self, channel: int, parent: int) -> None:
        self._channel, self._parent = channel, parent

    def get_eligible_capacity(self, supported_task_types: set[Any], **_: Any) -> tuple[set[Any], set[str]]:
        """Take ClientApps only."""
        from flwr.supercore.constant import TaskType

        return supported_task_types & {TaskType.CLIENT_APP}, set()

    def wait_for_capacity(self, *_: Any, **__: Any) -> None:
        """Nothing: there is no limit."""

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


def _ask_for_tasks(address: str, channel: int) -> None:
    """Flower's loop for one SuperNode."""
    loop = import_module("flwr.supercore.superexec.run_superexec")
    parent = os.getppid()
    loop.__dict__["get_executor"] = lambda *_, **__: Forwarding(channel, parent)  # Flower has no option for another one
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
