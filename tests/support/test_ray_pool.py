"""The pool of Ray workers with a pretended Ray: who is noticed, and what is repeated."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from fedhv.support.ray import pool as module
from fedhv.support.ray.pool import RayPool


class Lost(Exception):
    """A worker's process has ended."""


class PretendedRay:
    """Answers at once; a reference is (actor, task), and `start` refers to the start of a worker."""

    exceptions = SimpleNamespace(RayTaskError=type("RayTaskError", (Exception,), {}), RayError=Lost)

    def __init__(self, dies=()):
        self.dies, self.killed = set(dies), []

    def wait(self, references, num_returns, timeout):
        return references[:num_returns], references[num_returns:]

    def get(self, reference):
        if reference in self.dies:
            raise Lost("gone")
        return reference

    def kill(self, actor):
        self.killed.append(actor)


@pytest.fixture
def pool(monkeypatch):
    """A pool of two workers, numbered as they start; their results are what they were given."""
    monkeypatch.setattr(module, "unpack", lambda message: message)

    def made(ray):
        monkeypatch.setitem(sys.modules, "ray", ray)
        numbers = iter(range(9))

        def start():
            number = next(numbers)
            return number, (number, "start")

        return RayPool(start, lambda: 2, lambda result: None, lambda text: None)

    return made


def test_a_worker_that_has_started_is_noticed_although_another_always_has_a_result(pool):
    used = []
    results = list(
        pool(PretendedRay()).results(lambda actor, number: used.append(actor) or (actor, number), 20, ahead=8)
    )
    assert [number for _, number in results] == list(range(20))
    assert set(used) == {0, 1}


def test_a_worker_that_dies_with_two_tasks_is_replaced_and_both_are_repeated(pool):
    ray = PretendedRay(dies=[(0, 0), (0, 2)])
    results = list(pool(ray).results(lambda actor, number: (actor, number), 8, ahead=8))
    assert [number for _, number in results] == list(range(8))
    assert ray.killed == [0]
    assert all(actor != 0 for actor, number in results if number in (0, 2))
