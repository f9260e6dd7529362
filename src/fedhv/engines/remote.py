"""The worker of the engine `ray`: a process of the cluster with the problem and an engine of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedhv._version import __version__
from fedhv.engines.base import Engine
from fedhv.engines.sequential import Sequential
from fedhv.engines.stacked import Stacked
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.exchange import Call
from fedhv.protocol.intake import Intake
from fedhv.protocol.request import Request
from fedhv.protocol.script import Memory
from fedhv.protocol.sums import Partial
from fedhv.support.errors import FedHVError, InputError
from fedhv.support.ray.messages import Message, pack, unpack
from fedhv.support.ray.pool import Failure

INNER: dict[str, type[Sequential | Stacked]] = {"sequential": Sequential, "stacked": Stacked}
"""The engines of workers."""


@dataclass(frozen=True)
class Orders:
    """How a worker computes.

    Attributes:
        inner: The name of its engine.
        device: Its device.
        precision: Its precision.
        path: Where the program finds modules.
    """

    inner: str
    device: str
    precision: str
    path: tuple[str, ...]


@dataclass(frozen=True)
class Exchange:
    """A request to a cohort without its clients, which is sent once to every machine."""

    request: Request
    cohort: Cohort
    intake: Intake
    rounds: int
    """T of the run, where it is known."""


@dataclass(frozen=True)
class ClientsTask:
    """The part of an exchange for one worker: consecutive clients of the cohort, and what they keep.

    Attributes:
        clients: The clients.
        level: The level of the result in the tree of sums: 0 for one result for every client, otherwise one for all.
        memories: What those of them keep that keep something.
    """

    clients: list[int]
    level: int
    memories: dict[int, Memory]


@dataclass(frozen=True)
class ClientsResult:
    """The sums over the clients of a task, the memories that changed, and messages and measurements of the engine."""

    partials: list[Partial]
    memories: dict[int, Memory]
    notes: list[str]
    measured: dict[str, Any]


def machine() -> dict[str, str]:
    """What the bits of a result depend on besides the problem and the seed."""
    return {
        "fedhv": __version__,
        "torch": torch.__version__,
        "CPU": torch.backends.cpu.get_cpu_capability(),
    }


class Worker:
    """A Ray actor. Every method returns a message: its result, or the failure."""

    def __init__(self) -> None:
        self._engine: Sequential | Stacked | None = None

    def start(self, problem: Message, orders: Orders) -> Message:
        """Load the problem. Examples stay in the memory that the workers of a machine share."""

        def started() -> dict[str, str]:
            sys.path += [place for place in orders.path if place not in sys.path]
            torch.set_num_threads(1)
            try:
                loaded = unpack(problem)
            except (ImportError, AttributeError) as error:
                raise InputError(
                    f"A worker of the Ray cluster cannot load the problem: {error}. Modules of your own should be "
                    "importable on every machine."
                ) from None
            self._engine = INNER[orders.inner](loaded, orders.device, orders.precision)
            if isinstance(self._engine, Stacked):
                self._engine.training.prefetches = False  # which clients of the next cohort come here is not known
            return machine()

        return _answered(started, "The start of a worker")

    def compute(self, exchange: Message, task: Message) -> Message:
        """The replies of some clients."""
        received: ClientsTask = unpack(task)
        name = f"Clients {received.clients[0]} to {received.clients[-1]}"
        return _answered(lambda: self._compute(unpack(exchange), received), name)

    def assess(self, model: Message, start: int, chunk: int) -> Message:
        """The losses and scores of the model on some test examples."""
        name = f"The evaluation of test examples from {start}"
        return _answered(lambda: self._loaded._assess(unpack(model), start, chunk).cpu(), name)

    @property
    def _loaded(self) -> Sequential | Stacked:
        assert self._engine is not None
        return self._engine

    def _compute(self, exchange: Exchange, task: ClientsTask) -> ClientsResult:
        engine = self._loaded
        engine.rounds = exchange.rounds
        cohort = replace(exchange.cohort, clients=task.clients)
        call = Call(exchange.request, cohort, exchange.intake)
        call.memories.update(task.memories)
        before = {k: memory.versions() for k, memory in task.memories.items()}
        if task.level:
            partials = [engine.summed(call)]
        else:
            partials = [engine.summed(call.of([k])) for k in task.clients]
        changed = {
            k: memory
            for k, memory in call.memories.items()
            if (memory.round or memory.run) and before.get(k) != memory.versions()
        }
        notes, engine.notes[:] = list(engine.notes), []
        return ClientsResult([each.joined() for each in partials], changed, notes, engine.measured(cohort.round + 1))


def _answered(compute: Callable[[], Any], name: str) -> Message:
    try:
        return pack(compute())
    except FedHVError as error:
        return pack(Failure(error))
    except Exception as error:
        return pack(Failure(RuntimeError(f"{name}: {type(error).__name__}: {error}")))


def examples_of(engine: Engine) -> Sequence[Tensor]:
    """The tensors of the problem's examples, which workers read and never change."""
    from fedhv.problem.trees import leaves

    held = [each for each in (engine.problem.train, engine.problem.test) if each is not None]
    parts = [part for each in held for part in (*leaves(each.inputs), *each.targets, *(each.labelled or ()))]
    return [part for part in parts if isinstance(part, Tensor)]
