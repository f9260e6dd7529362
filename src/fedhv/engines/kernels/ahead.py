"""Compile Triton kernels before they are needed, several at once: one after the other a ResNet's take half a minute.

The compiler holds Python's lock for a large part of its time, so kernels are compiled by forked processes. They write
into Triton's cache on the disk, from which this process, and later ones, load the kernels. Tiles are chosen by rules,
never by measuring.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol

from fedhv.support.cores import usable_cores

PATIENCE = 0.2
"""Seconds between checks for a signal."""

SILENT = 120.0
"""Seconds without a compiled kernel after which forked processes are taken to be deadlocked.

A process has the locks of the one that it was forked from, and may wait for one that a thread held.
"""

LEAVING = 1.0
"""Seconds to wait for killed processes to go. Later ones are collected by a thread."""

MOST = 16
"""The largest number of kernels that are compiled at the same time."""


class Compilable(Protocol):
    """What can be compiled."""

    def compile_elsewhere(self) -> None:
        """Compile it in a forked process, which must not use the GPU; the result is kept on the disk."""

    def compile(self) -> None:
        """Compile it, or load it from the disk."""


def compile_all(kernels: Iterable[Compilable], stopping: Callable[[], bool] = lambda: False) -> None:
    """Compile these in forked processes, and load the results; in threads where a system cannot fork.

    An error is not raised: it comes again where the kernel is started. KeyboardInterrupt is raised if `stopping` is
    true; processes are killed, and threads are left to end with this process.
    """
    wanted = list(kernels)
    count = min(MOST, usable_cores(), len(wanted))
    if count > 1 and hasattr(os, "fork"):
        _in_processes(wanted, count, stopping)
    _in_threads(wanted, count, stopping)


def _in_processes(kernels: Sequence[Compilable], count: int, stopping: Callable[[], bool]) -> None:
    """Every process takes the next kernel from a pipe until it is empty, and notes in another that it is compiled.

    Processes that are silent for long are killed; what they have not compiled, threads do.
    """
    taken, given = os.pipe()
    notes, noted = os.pipe()
    os.set_blocking(notes, False)
    for number in range(len(kernels)):
        os.write(given, number.to_bytes(2))
    os.close(given)
    running: set[int] = set()
    try:
        for _ in range(count):
            if stopping():
                raise KeyboardInterrupt
            with warnings.catch_warnings():  # threads of this process, which a fork does not have, are not needed
                warnings.simplefilter("ignore", DeprecationWarning)
                try:
                    process = os.fork()
                except OSError:  # no room for another one: those that run take all kernels, or threads do
                    break
            if process == 0:
                _take(kernels, taken, noted)
            running.add(process)
        last = time.monotonic()
        while running := {process for process in running if not _ended(process, os.WNOHANG)}:
            with suppress(BlockingIOError):
                os.read(notes, len(kernels))
                last = time.monotonic()
            if time.monotonic() - last > SILENT:
                break
            if stopping():
                raise KeyboardInterrupt
            time.sleep(PATIENCE / 10)
    finally:
        for pipe in (taken, notes, noted):
            os.close(pipe)
        for process in running:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        # They end at once and together. A large process on a busy GPU takes seconds to go; nobody waits for that.
        leaving = threading.Thread(target=lambda: [_ended(process) for process in running], daemon=True)
        leaving.start()
        leaving.join(LEAVING)


def _ended(process: int, options: int = 0) -> bool:
    """Whether a process has ended. One that is not known has: where SIGCHLD is ignored, the system removes it."""
    try:
        return os.waitpid(process, options)[0] == process
    except ChildProcessError:
        return True


def _take(kernels: Sequence[Compilable], taken: int, noted: int) -> None:
    """What a forked process does; it leaves no trace but the compiled kernels."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # for the process that waits, which ends this one
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        while number := os.read(taken, 2):
            with suppress(Exception):
                kernels[int.from_bytes(number)].compile_elsewhere()
            os.write(noted, b".")
    finally:
        os._exit(0)


def _in_threads(kernels: Iterable[Compilable], count: int, stopping: Callable[[], bool]) -> None:
    waiting: queue.SimpleQueue[Compilable] = queue.SimpleQueue()
    for kernel in kernels:
        waiting.put(kernel)

    def work() -> None:
        while True:
            try:
                kernel = waiting.get_nowait()
            except queue.Empty:
                return
            with suppress(Exception):
                kernel.compile()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        await_threads(threads, stopping)
    finally:
        with suppress(queue.Empty):  # after an interrupt the threads end with the kernels that they have begun
            while True:
                waiting.get_nowait()


def await_threads(threads: Iterable[threading.Thread], stopping: Callable[[], bool]) -> None:
    """Wait for threads; KeyboardInterrupt if `stopping` becomes true."""
    for thread in threads:
        while thread.is_alive():
            thread.join(PATIENCE)
            if stopping():
                raise KeyboardInterrupt
