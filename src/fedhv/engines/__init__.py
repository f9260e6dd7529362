"""Where clients live. Every engine gives the same answers; they differ in speed alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedhv.engines.base import Engine
from fedhv.engines.sequential import Sequential
from fedhv.errors import InputError, unknown
from fedhv.problem import Problem

ENGINES: dict[str, type[Engine]] = {"sequential": Sequential}

__all__ = ["ENGINES", "Choice", "Engine", "Sequential", "choose_device", "choose_engine", "make_engine"]


def choose_device(name: str = "auto") -> torch.device:
    """A device by name; "auto" takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"Unknown device '{name}'. Use 'auto', 'cpu' or 'cuda'.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("The device 'cuda' was asked for, but torch finds no GPU. Use --device cpu.")
    return device


@dataclass(frozen=True)
class Choice:
    """An engine and its device, and why they were chosen."""

    engine: str
    device: torch.device
    reason: str = "as asked"


def choose_engine(name: str, problem: Problem, device: str = "auto") -> Choice:
    """An engine by name; "auto" takes the fastest for the device, the model and the cohort."""
    where = choose_device(device)
    if name == "auto":
        return Choice("sequential", where, "the only engine so far")
    if name not in ENGINES:
        raise unknown("engine", name, ["auto", *ENGINES])
    return Choice(name, where)


def make_engine(name: str, problem: Problem, device: str = "auto") -> Engine:
    """The chosen engine, ready to answer."""
    choice = choose_engine(name, problem, device)
    return ENGINES[choice.engine](problem, choice.device)
