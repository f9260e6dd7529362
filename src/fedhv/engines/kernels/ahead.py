"""Compile Triton kernels before they are needed, several at once: one after the other a ResNet's take half a minute.

Tiles are chosen by rules, never by measuring, and Triton keeps compiled kernels on the disk for other processes.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from fedhv.support.cores import usable_cores

PATIENCE = 0.2
"""Seconds between looks at whether somebody wants to stop."""


class Compilable(Protocol):
    """What can be compiled."""

    def compile(self) -> None:
        """Compile it."""


def compile_all(kernels: Iterable[Compilable], stopping: Callable[[], bool] = lambda: False) -> None:
    """Compile these in threads; the compiler releases Python's lock most of the time.

    An error is not raised: it comes again where the kernel is started. KeyboardInterrupt is raised if `stopping` is
    true; the threads are left to end with the process.
    """
    waiting: queue.SimpleQueue[Compilable] = queue.SimpleQueue()
    for kernel in kernels:
        waiting.put(kernel)

    def work() -> None:
        while True:
            try:
                kernel = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                kernel.compile()
            except Exception:
                continue

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(16, usable_cores(), waiting.qsize()))]
    for thread in threads:
        thread.start()
    await_threads(threads, stopping)


def await_threads(threads: Iterable[threading.Thread], stopping: Callable[[], bool]) -> None:
    """Wait for threads; KeyboardInterrupt if `stopping` becomes true."""
    for thread in threads:
        while thread.is_alive():
            thread.join(PATIENCE)
            if stopping():
                raise KeyboardInterrupt
