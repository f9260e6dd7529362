"""Where clients live. Every engine gives the same answers; they differ in speed alone."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import dataclass

import torch

from fedhv.engines.base import Engine
from fedhv.engines.parallel import Parallel, can_fork
from fedhv.engines.sequential import Sequential
from fedhv.engines.stacked import Stacked
from fedhv.errors import InputError, unknown
from fedhv.problem import Problem

ENGINES: dict[str, type[Engine]] = {
    "sequential": Sequential,
    "parallel": Parallel,
    "stacked": Stacked,
}

__all__ = ["ENGINES", "Choice", "Engine", "Parallel", "Sequential", "Stacked", "choose_device", "choose_engine"]


def choose_device(name: str = "auto") -> torch.device:
    """A device by name; "auto" takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device: torch.device | None = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise InputError(f"Unknown device '{name}'. Use 'auto', 'cpu' or 'cuda'.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("The device 'cuda' was asked for, but torch finds no GPU. Use --device cpu.")
    return device


@dataclass(frozen=True)
class Choice:
    """Where and how a run is computed, and why so."""

    engine: str
    device: torch.device
    precision: str
    reason: str = "as asked"

    def make(self, problem: Problem) -> Engine:
        """The engine, ready to answer."""
        return ENGINES[self.engine](problem, self.device, self.precision)


def choose_engine(name: str = "auto", device: str = "auto", precision: str = "auto") -> Choice:
    """An engine by name; "auto" takes the fastest for the device."""
    where = choose_device(device)
    reason = "as asked"
    if name == "auto":
        name, reason = _fastest(where)
    if name not in ENGINES:
        raise unknown("engine", name, ["auto", *ENGINES])
    if precision == "auto":
        precision = "tf32" if where.type == "cuda" else "float32"
    if precision not in ENGINES[name].precisions:
        known = " or ".join(ENGINES[name].precisions)
        raise InputError(f"The engine '{name}' computes in {known}. Found precision '{precision}'.")
    if precision == "tf32" and where.type != "cuda":
        raise InputError("The precision 'tf32' is one of GPUs. Use --precision float32 on a CPU.")
    return Choice(name, where, precision, reason)


def _fastest(device: torch.device) -> tuple[str, str]:
    """The engine for a device, and why."""
    cores = os.cpu_count() or 1
    if device.type == "cuda":
        return "stacked", "a GPU"
    if multiprocessing.current_process().daemon or multiprocessing.parent_process() is not None:
        return "sequential", "this is one of several processes"
    if cores > 1 and can_fork():
        return "parallel", f"{cores} cores"
    return "sequential", "one core"
