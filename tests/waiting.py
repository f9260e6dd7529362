"""Waiting for what other processes do. The machine's speed decides no result: the one bound is against hanging."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

ATTEMPTS = 5
HANG = 1800.0
"""Seconds after which something hangs, however busy the machine is."""


def wait_until(condition: Callable[[], T], what: str, running: subprocess.Popen | None = None) -> T:
    """Wait until something is true, and no longer than the command runs that is to bring it; returns its value."""
    end = time.monotonic() + HANG
    while not (value := condition()):
        if running is not None and running.poll() is not None:
            raise AssertionError(f"while waiting for {what} the command ended: {running.communicate()}")
        assert time.monotonic() < end, f"hangs: {what}"
        time.sleep(0.02)
    return value


def started(start: Callable[[], T], clean_up: Callable[[], object]) -> T:
    """What `start` returns. On a busy machine Ray gives up after a time of its own and has to be started again."""
    for _ in range(ATTEMPTS - 1):
        try:
            return start()
        except Exception:
            clean_up()
    return start()
