"""The choice of an engine: the requested one, or the fastest for the device, the model and the cohort."""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch

from fedhv.engines.base import Engine
from fedhv.engines.kernels.preparing import prepare_kernels
from fedhv.engines.mappable import why_not_bf16, why_not_mappable
from fedhv.engines.portions import gpu_memory
from fedhv.engines.registry import ENGINES
from fedhv.problem.problem import Problem
from fedhv.protocol.local import LocalTraining
from fedhv.support.cores import usable_cores
from fedhv.support.errors import InputError, unknown
from fedhv.support.pool import can_fork
from fedhv.support.ray.connection import check_address, check_ray
from fedhv.support.wording import counted

WORTH_SENDING = 100_000
"""Parameters × examples of a client's local training. Below this, sending the work costs more than the work."""


class Workload(Protocol):
    """The size of a round: the number of clients and their local training."""

    @property
    def participants(self) -> int:
        """M."""

    @property
    def local(self) -> LocalTraining:
        """Their local training."""


AnyPlan = TypeVar("AnyPlan")


@dataclass(frozen=True)
class Choice:
    """The engine, device and precision of a run, and the reason for them.

    `announce` is whether to show a message, because the user did not choose the engine.
    """

    engine: str
    device: torch.device
    precision: str
    reason: str = "as requested"
    announce: bool = False

    def make(self, problem: Problem) -> Engine:
        """The engine."""
        return ENGINES[self.engine](problem, self.device, self.precision)

    @property
    def machine(self) -> dict[str, str]:
        """The entries of a run's folder about engine, device and precision."""
        return {
            "engine": self.engine,
            "device": str(self.device),
            "precision": self.precision,
            "torch": torch.__version__,
        }

    @property
    def fixes(self) -> dict[str, Any]:
        """The values that affect the results of a run; they are in the table `run` of `config.toml`."""
        return {}

    def adapted(self, plan: AnyPlan) -> AnyPlan:
        """The plan with this engine's defaults; Flower sets a bound on update norms."""
        return plan

    def __str__(self) -> str:
        return f"Engine: {self.engine} on {self.device}, {self.precision} ({self.reason})."


def choose_device(name: str = "auto") -> torch.device:
    """A device by name; "auto" takes a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device: torch.device | None = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda", "mps"):
        raise InputError(f"Unknown device '{name}'. Use 'auto', 'cpu', 'cuda' or 'mps'.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("The device should be available. Found 'cuda', but torch finds no GPU. Use --device cpu.")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError("The device should be available. Found 'mps', but torch finds no Apple GPU. Use --device cpu.")
    return device


def choose_engine(
    name: str = "auto",
    device: str = "auto",
    precision: str = "auto",
    problem: Problem | None = None,
    plan: Workload | None = None,
) -> Choice:
    """An engine by name; "auto" takes the fastest for the device, the model and the cohort.

    If the problem is given and its model cannot be stacked, the engine is the sequential one, even if another was
    requested. The results are the same.
    """
    where = choose_device(device)
    reason, auto = "as requested", name == "auto"
    if auto:
        name, reason = _fastest(where, problem, plan)
    if name not in ENGINES:
        raise unknown("engine", name, ["auto", *ENGINES])
    if name == "ray":
        check_ray("--engine ray")
        check_address()
    if where.type == "mps" and name != "sequential":
        raise InputError(
            f"The device 'mps' should have the engine 'sequential'. Found '{name}'. Use --engine sequential."
        )
    if where.type == "mps" and precision not in ("auto", "float32"):
        raise InputError(f"The device 'mps' computes in float32. Found '{precision}'. Use --precision float32.")
    if precision == "auto":
        precision = "tf32" if where.type == "cuda" else "float32"
    obstacle = None
    if name == "stacked" and problem is not None and precision in ENGINES[name].precisions:
        with gpu_memory(device=where):
            obstacle = why_not_stacked(problem, where, precision)
    if obstacle is not None:
        name, reason = "sequential", obstacle
    if precision not in ENGINES[name].precisions:
        known = " or ".join(ENGINES[name].precisions)
        raise InputError(
            f"The engine '{name}' computes in {known}. Found precision '{precision}'. Use --precision "
            f"{ENGINES[name].precisions[0]}."
        )
    if precision == "tf32" and where.type != "cuda":
        raise InputError("The precision 'tf32' needs a GPU. Use --precision float32 on a CPU.")
    if precision == "bf16" and problem is not None and name in ("sequential", "ray"):
        with gpu_memory(device=where):
            objection = why_not_bf16(problem, where)
        if objection is not None:
            other = "tf32" if where.type == "cuda" else "float32"
            raise InputError(f"The model should compute in bf16. Found: {objection}. Use --precision {other}.")
    return Choice(name, where, precision, reason, announce=auto or obstacle is not None)


def why_not_stacked(problem: Problem, device: torch.device, precision: str) -> str | None:
    """Why a problem cannot use the stacked engine, which holds all examples on the device."""
    if not problem.train.resident:
        return "the examples cannot be stored on the device: they are read or collated in minibatches"
    prepare_kernels(device, precision)
    obstacle = why_not_mappable(problem, device, precision)
    return None if obstacle is None else f"the model cannot be stacked: {obstacle}"


def _fastest(device: torch.device, problem: Problem | None, plan: Workload | None) -> tuple[str, str]:
    """The engine for a device, a model and a cohort, and why."""
    cohort = None if plan is None else plan.participants
    clients = "" if cohort is None else f", {counted(cohort, 'client')} a round"
    if device.type == "cuda":
        return "stacked", f"a GPU{clients}"
    if device.type == "mps":
        return "sequential", "Apple's GPU"
    cores = usable_cores()
    if cores == 1:
        return "sequential", "one core"
    if multiprocessing.current_process().daemon or multiprocessing.parent_process() is not None:
        return "sequential", "this is one of several processes"
    if not can_fork():
        return "sequential", "this system cannot fork worker processes"
    if cohort == 1:
        return "sequential", "a round has one client"
    if problem is not None and plan is not None and _work(problem, plan) < WORTH_SENDING:
        return "sequential", "the clients' work is too small for worker processes"
    return "parallel", f"{cores} cores{clients}"


def _work(problem: Problem, plan: Workload) -> int:
    """Parameters × examples of a client in a round; in epochs, of a client of the mean size."""
    with torch.random.fork_rng(devices=[]):
        d = sum(parameter.numel() for parameter in problem.model().parameters())
    examples = int(problem.clients.sizes.mean())
    return d * plan.local.steps_of(examples) * plan.local.batch_size
