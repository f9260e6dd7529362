"""The clients of a cohort on the workers of a Ray cluster: a round is a sum over workers.

Every worker is a process with the problem and an engine of its own: `sequential` on a core, `stacked` on a GPU. The
problem is stored once on every machine, the model once for every exchange. A large cohort is divided where the tree of
sums divides it (see `fedhv.protocol.sums`), and a worker returns one sum for its clients; the server never holds
single updates. So any number of workers gives the bits of one machine. In a small cohort, which has fewer sums than
the workers need, workers return the replies of single clients.

What clients keep between rounds is kept here and sent with their tasks. If a worker or its machine dies, another one
computes its clients again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedhv.engines.base import Engine
from fedhv.engines.choosing import why_not_stacked
from fedhv.engines.parts import parts
from fedhv.engines.remote import INNER, ClientsResult, ClientsTask, Exchange, Orders, Worker, examples_of, machine
from fedhv.problem.problem import Problem
from fedhv.protocol.exchange import Call, Collector
from fedhv.protocol.request import Replies
from fedhv.protocol.sums import SIZES, Sums
from fedhv.support.errors import InputError, unknown
from fedhv.support.ray.connection import check_ray, connected
from fedhv.support.ray.messages import pack
from fedhv.support.ray.pool import RayPool

TASKS_PER_WORKER = 3
"""The least number of tasks for each worker in a round; with fewer, some workers would wait for the others."""
AHEAD = 4
"""Results for each worker that may wait for the sum before theirs, in Ray's memory."""


@dataclass(frozen=True)
class Division:
    """A cohort divided among workers: consecutive clients for every task, and the level of its sum."""

    clients: Sequence[Sequence[int]]
    level: int

    @classmethod
    def of(cls, clients: Sequence[int], workers: int) -> Division:
        """The largest sums of the tree that are enough tasks for all workers; otherwise single clients."""
        wanted = TASKS_PER_WORKER * workers
        for level in range(len(SIZES) - 1, 0, -1):
            if len(clients) > SIZES[level] * (wanted - 1):
                return cls(_pieces(clients, SIZES[level]), level)
        return cls(_pieces(clients, max(1, len(clients) // wanted)), 0)


class Ray(Engine):
    """Computes clients on a Ray cluster: at RAY_ADDRESS, on this machine, or in a temporary one on this machine.

    Args:
        problem: The problem.
        device: The device of the server and of every worker.
        precision: The precision of every worker.
        workers: The number of workers; by default one for every core of the cluster, or for every GPU.
        inner: The engine of workers; by default `stacked` on GPUs if the model can be stacked, else `sequential`.
    """

    precisions = ("float32", "tf32", "bf16")

    def __init__(
        self,
        problem: Problem,
        device: torch.device | str = "cpu",
        precision: str = "float32",
        workers: int | None = None,
        inner: str | None = None,
    ) -> None:
        check_ray("--engine ray")
        super().__init__(problem, device, precision)
        on_gpu = self.device.type == "cuda"
        if inner is None:
            inner = "stacked" if on_gpu and why_not_stacked(problem, self.device, precision) is None else "sequential"
        if inner not in INNER:
            raise unknown("inner engine", inner, list(INNER))
        self.inner, self._most = inner, workers
        self._resource = "GPU" if on_gpu else "CPU"
        self._measured: dict[str, Any] = {}
        self._noted: set[str] = set()
        self._close = ExitStack()
        with ExitStack() as stack:
            stack.enter_context(connected(workers))
            check_room(self._resource)
            self._prepare(precision)
            self._close = stack.pop_all()

    def _prepare(self, precision: str) -> None:
        import ray

        problem = ray.put(self._packed_problem())
        orders = Orders(self.inner, self.device.type, precision, tuple(sys.path))
        gpus = 1 if self._resource == "GPU" else 0
        actor: Any = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=0, scheduling_strategy="SPREAD")(Worker)

        def start() -> tuple[Any, Any]:
            worker = actor.remote()
            return worker, worker.start.remote(problem, orders)

        self._pool = RayPool(start, self._slots, self._started, self.notes.append)

    def _packed_problem(self) -> Any:
        try:
            return pack(self.problem, examples_of(self))
        except Exception as error:  # whatever the user's objects raise when they are pickled
            raise InputError(
                f"The engine 'ray' sends the problem to other processes, so it should be picklable. Found: {error}"
            ) from error

    def _slots(self) -> int:
        """The number of workers that the cluster has room for."""
        import ray

        room = int(ray.cluster_resources().get(self._resource, 0))
        return room if self._most is None else self._most

    def _started(self, there: dict[str, str]) -> None:
        """Compare a worker's machine with this one."""
        for name, here in machine().items():
            if there[name] != here:
                self._note(
                    f"A worker of the Ray cluster has {name} {there[name]}, this machine {here}: bits may differ."
                )

    def _note(self, note: str) -> None:
        """A message that several workers may have; it is shown once."""
        if note not in self._noted:
            self._noted.add(note)
            self.notes.append(note)

    def ask(self, call: Call) -> Replies:
        """The replies of the cohort, as sums of what the workers return."""
        stacked = self.inner == "stacked"
        if stacked:  # the bits of a stack depend on its size, so the parts are those of one machine
            division = Division(parts(call.cohort.clients), len(SIZES) - 1)
        else:
            division = Division.of(call.cohort.clients, max(1, self._slots()))
        sums = Sums()
        for result in self._computed(call, division):
            for partial in result.partials:
                sums.add(partial, division.level)
            for k, memory in result.memories.items():
                call.memories[k] = memory
            for note in result.notes:
                self._note(note)
            self._measured |= result.measured
        return Collector(call, self.layout, self.client.holding, sums.total()).replies()

    def _computed(self, call: Call, division: Division) -> Iterator[ClientsResult]:
        import ray

        exchange = Exchange(call.request, replace(call.cohort, clients=()), call.intake, self.rounds)
        sent = ray.put(pack(exchange))

        def task(worker: Any, number: int) -> Any:
            clients = list(division.clients[number])
            memories = {k: memory for k in clients if (memory := call.memories[k]).round or memory.run}
            return worker.compute.remote(sent, pack(ClientsTask(clients, division.level, memories)))

        def name(number: int) -> str:
            some = division.clients[number]
            which = f"Client {some[0]}" if len(some) == 1 else f"The part of clients {some[0]} to {some[-1]}"
            return f"{which} in round {call.cohort.round + 1}"

        return self._results(task, len(division.clients), name)

    def _assessments(self, model: Tensor, chunk: int) -> Iterator[Tensor]:
        """Losses and scores of the test examples, in chunks that are divided among the workers."""
        import ray

        starts, sent = range(0, len(self._tested), chunk), ray.put(pack(model))
        found = self._results(
            lambda worker, number: worker.assess.remote(sent, starts[number], chunk),
            len(starts),
            lambda number: f"The evaluation of test examples from {starts[number]}",
        )
        return (part.to(self.device) for part in found)

    def _results(self, task: Any, count: int, name: Any) -> Iterator[Any]:
        return self._pool.results(task, count, ahead=AHEAD * max(1, self._slots()), name=name)

    def measured(self, number: int) -> dict[str, Any]:
        """What the workers' engines measured in the round."""
        found, self._measured = self._measured, {}
        return found

    def close(self) -> None:
        """Stop the workers, and leave the cluster if the engine connected to it."""
        self._pool.close()
        self._close.close()
        super().close()

    @property
    def workers(self) -> list[Any]:
        """The Ray actors of the workers that have started."""
        return self._pool.actors


def check_room(resource: str) -> None:
    """Raise an error if the cluster has no room for a worker; a resource is "CPU" or "GPU"."""
    import ray

    if ray.cluster_resources().get(resource, 0) < 1:
        kind = "GPU for --device cuda" if resource == "GPU" else "core"
        raise InputError(f"The Ray cluster should have a {kind}. Found none; see `ray status`.")


def _pieces(clients: Sequence[int], size: int) -> list[Sequence[int]]:
    return [clients[start : start + size] for start in range(0, len(clients), size)]
