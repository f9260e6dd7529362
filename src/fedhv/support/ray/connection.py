"""The connection to a Ray cluster: the one at RAY_ADDRESS, that of this machine, or a temporary one."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fedhv.support.cores import usable_cores
from fedhv.support.errors import FedHVError, InputError

SECONDS_TO_REACH = 10.0
"""Seconds for a connection to RAY_ADDRESS. Ray itself tries an address without a cluster for minutes."""

ATTEMPTS = 3
"""How often Ray is started on this machine."""


def check_ray(option: str) -> None:
    """Raise an error if Ray is not installed; `option` is what needs it."""
    try:
        import ray  # noqa: F401
    except ImportError:
        raise InputError(f"{option} needs Ray, which is not installed: pip install 'fedhv[ray]'.") from None


@contextmanager
def connected(cores: int | None = None) -> Iterator[None]:
    """The cluster at RAY_ADDRESS or on this machine; if there is none, a temporary one on this machine.

    A connection that the program has is used and left open. `cores` is the size of a temporary cluster.
    """
    import ray

    if ray.is_initialized():
        yield
        return
    check_address()
    with _own_signals():
        try:
            _init(address="auto")
        except ConnectionError:
            if address := os.environ.get("RAY_ADDRESS"):
                raise FedHVError(_no_cluster(address)) from None
            start_cluster(cores or usable_cores())
    try:
        yield
    finally:
        ray.shutdown()


def start_cluster(cores: int) -> None:
    """Start a temporary cluster on this machine and connect to it.

    Ray gives its processes half a minute to start, which is short on a busy machine, so it is tried again.
    """
    import ray

    for attempts_left in reversed(range(ATTEMPTS)):
        try:
            _init(address="local", num_cpus=cores, include_dashboard=False)
            return
        except Exception as error:
            ray.shutdown()
            if not attempts_left:
                raise FedHVError(
                    f"Ray does not start on this machine. Found: {' '.join(str(error).split())}"
                ) from error


def _init(**options: Any) -> None:
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or else it warns about its future
    ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)


def check_address() -> None:
    """Raise an error if nothing answers at RAY_ADDRESS."""
    address = os.environ.get("RAY_ADDRESS", "")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return  # a word such as "auto", or nothing
    try:
        socket.create_connection((host, int(port)), timeout=SECONDS_TO_REACH).close()
    except OSError as error:
        raise FedHVError(f"{_no_cluster(address)} Found: {error}.") from None


def _no_cluster(address: str) -> str:
    return f"There is no Ray cluster at {address} (RAY_ADDRESS)."


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep this program's handlers: Ray sets one that ends the process at SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
