"""A pool of workers on a Ray cluster. Results come in the order of the tasks; a worker that dies is replaced."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fedhv.support.errors import FedHVError
from fedhv.support.ray.messages import Message, unpack

ATTEMPTS = 3
SECONDS_BETWEEN_LOOKS = 0.25
SECONDS_TO_START = 300.0
"""Seconds without any worker after which the pool gives up: other programs may have all of the cluster."""


@dataclass(frozen=True)
class Failure:
    """The error of a task, which a worker returns instead of a result."""

    error: Exception


@dataclass(eq=False)
class _Worker:
    actor: Any
    starting: Any
    """The reference to the result of its start; None once it has started."""
    tasks: dict[Any, int] = field(default_factory=dict)
    """The numbers of its tasks by reference, in the order in which it computes them."""


class RayPool:
    """Workers that compute tasks. They start with the first task and run until `close`.

    Args:
        start: Starts a worker; returns the Ray actor and the reference to the result of its start.
        slots: The number of workers that the cluster has room for.
        started: Called with the result of every start.
        warn: Called with a message when a worker died and its task is repeated.
    """

    def __init__(
        self,
        start: Callable[[], tuple[Any, Any]],
        slots: Callable[[], int],
        started: Callable[[Any], None],
        warn: Callable[[str], None],
    ) -> None:
        self._start, self._slots, self._started, self._warn = start, slots, started, warn
        self._workers: list[_Worker] = []
        self._failed_starts = 0

    def results(
        self,
        task: Callable[[Any, int], Any],
        count: int,
        *,
        ahead: int | None = None,
        name: Callable[[int], str] = "Task {}".format,
    ) -> Iterator[Any]:
        """The results of tasks 0 … count − 1, in this order. An exception in a worker is raised here.

        Args:
            task: Sends the task with this number to a Ray actor and returns the reference to its result, a `Message`.
                Called again after a worker died.
            count: The number of tasks.
            ahead: How many tasks may be started or finished before the caller has read the first of their results.
            name: The name of a task in messages.
        """
        waiting, deaths = list(range(count)), [0] * count
        answers: dict[int, Message] = {}
        alive = time.monotonic()
        try:
            self._replenish(count)
            for due in range(count):
                while due not in answers:
                    self._assign(task, waiting, count if ahead is None else due + ahead)
                    done = self._done()
                    for worker, reference in done:
                        if worker not in self._workers:
                            continue  # it has died with its other task, and both are repeated
                        self._receive(worker, reference, answers, waiting, deaths, name)
                    if any(worker.starting is None for worker in self._workers):
                        alive = time.monotonic()
                    elif time.monotonic() > alive + SECONDS_TO_START:
                        raise FedHVError(
                            f"No worker started on the Ray cluster in {SECONDS_TO_START:g} s; other programs may use "
                            "all of its cores or GPUs. See `ray status`."
                        )
                    if not done or len(self._workers) == 0:
                        self._replenish(count)  # a machine may have joined, and a worker that died is replaced
                yield self._value(answers.pop(due))
        finally:
            if any(worker.tasks for worker in self._workers):
                self.close()  # no worker continues a task whose result nobody reads

    def _replenish(self, count: int) -> None:
        """Start workers until the cluster is full, or there is one for every task."""
        wanted = min(count, max(1, self._slots()))
        while len(self._workers) < wanted:
            self._workers.append(_Worker(*self._start()))

    def _assign(self, task: Callable[[Any, int], Any], waiting: list[int], limit: int) -> None:
        """Give tasks to workers. While many are left, a worker has its next one before it has finished one."""
        ready = [worker for worker in self._workers if worker.starting is None]
        for most in (1, 2):
            for worker in ready:
                enough = most == 1 or len(waiting) > len(ready)
                if len(worker.tasks) < most and waiting and waiting[0] < limit and enough:
                    number = waiting.pop(0)
                    worker.tasks[task(worker.actor, number)] = number

    def _done(self) -> list[tuple[_Worker, Any]]:
        """The workers that have started, answered or died, and the reference that says so, after a short wait."""
        import ray

        pending = {reference: worker for worker in self._workers for reference in worker.tasks}
        pending |= {worker.starting: worker for worker in self._workers if worker.starting is not None}
        found, rest = ray.wait(list(pending), num_returns=1, timeout=SECONDS_BETWEEN_LOOKS)
        if found and rest:
            # All that are ready: of short tasks one always is, and a started worker would not be noticed.
            found = [*found, *ray.wait(rest, num_returns=len(rest), timeout=0)[0]]
        return [(pending[reference], reference) for reference in found]

    def _receive(
        self,
        worker: _Worker,
        reference: Any,
        answers: dict[int, Message],
        waiting: list[int],
        deaths: list[int],
        name: Callable[[int], str],
    ) -> None:
        import ray

        try:
            answer = ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None  # a bug: show its own traceback
        except ray.exceptions.RayError as error:
            self._remove(worker)
            why = " ".join(str(error).split()).split(". ")[0]
            if worker.starting is not None:
                self._failed_starts += 1
                if self._failed_starts == ATTEMPTS:
                    raise FedHVError(
                        f"Workers do not start on the cluster ({why}). Every machine needs the same fedhv and torch."
                    ) from None
            lost = list(worker.tasks.values())
            for first in lost[:1]:  # the one that it was computing
                deaths[first] += 1
                if deaths[first] == ATTEMPTS:
                    raise FedHVError(
                        f"{name(first)} ended its worker {ATTEMPTS} times (out of memory?). Found: {why}."
                    ) from None
                self._warn(f"A worker of the Ray cluster died. {name(first)} is repeated.")
            waiting[:] = sorted([*waiting, *lost])
            self._replenish(len(deaths))
            return
        if worker.starting == reference:
            self._started(self._value(answer))
            worker.starting, self._failed_starts = None, 0
        else:
            answers[worker.tasks.pop(reference)] = answer

    @staticmethod
    def _value(message: Message) -> Any:
        value = unpack(message)
        if isinstance(value, Failure):
            raise value.error
        return value

    def _remove(self, worker: _Worker) -> None:
        import ray

        self._workers.remove(worker)
        with suppress(Exception):  # it may be gone already
            ray.kill(worker.actor)

    def close(self) -> None:
        """Stop all workers."""
        for worker in list(self._workers):
            self._remove(worker)

    @property
    def actors(self) -> list[Any]:
        """The actors of the workers that have started."""
        return [worker.actor for worker in self._workers if worker.starting is None]
