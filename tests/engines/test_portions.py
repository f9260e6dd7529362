"""What does not fit into a GPU's memory is computed in smaller portions."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from fedhv import FedHVError
from fedhv.cohort import LocalTraining
from fedhv.engines.portions import Portion
from fedhv.engines.sequential import Sequential
from fedhv.methods import Uniform
from fedhv.problem import Examples
from fedhv.simulation import Plan, simulate


def test_it_is_halved_from_what_there_is_until_it_fits_and_stays_so():
    notes, released, tried = [], [], []
    portion = Portion(1_000_000, "{size} at a time", "not even one", notes)

    def compute(size: int) -> int:
        tried.append(size)
        if size > 3:
            raise torch.cuda.OutOfMemoryError("full")
        return size

    assert portion(10, compute, lambda: released.append(True)) == 3
    assert tried == [10, 5, 3]
    assert notes == ["5 at a time", "3 at a time"]
    assert len(released) == 2
    assert portion(2, compute) == 2
    assert portion(10, compute) == 3
    assert tried[3:] == [2, 3]


def test_not_even_one_is_an_error_in_one_line():
    def full(size: int) -> None:
        raise torch.cuda.OutOfMemoryError("full")

    with pytest.raises(FedHVError, match=r"^not even one$"):
        Portion(4, "{size}", "not even one", [])(4, full)


def test_other_errors_are_not_taken_for_short_memory():
    def wrong(size: int) -> None:
        raise RuntimeError("shapes do not match")

    notes: list[str] = []
    portion = Portion(8, "{size}", "not even one", notes)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        portion(8, wrong)
    assert (portion.size, notes) == (8, [])


def test_what_a_failed_attempt_held_in_a_cycle_is_gone_before_memory_is_given_back():
    class Held:
        def __init__(self):
            self.myself = self

    held: list[weakref.ref[Held]] = []

    def compute(size: int) -> int:
        thing = Held()
        held.append(weakref.ref(thing))
        if size > 1:
            raise torch.cuda.OutOfMemoryError("full")
        return size

    alive: list[bool] = []
    gc.disable()  # or it might be gone by chance
    try:
        Portion(2, "{size}", "not even one", [])(2, compute, lambda: alive.append(held[0]() is not None))
    finally:
        gc.enable()
    assert alive == [False]


def test_memory_that_is_short_elsewhere_is_an_error_in_one_line(quadratic_problem, monkeypatch):
    def full(*_: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 44.00 MiB. GPU 0 has …")

    with monkeypatch.context() as patch:
        patch.setattr(Examples, "to", full)
        with pytest.raises(FedHVError, match=r"^The examples do not fit into the GPU's memory\. Use --device cpu"):
            Sequential(quadratic_problem)
    engine = Sequential(quadratic_problem)
    monkeypatch.setattr(engine, "ask_together", full)
    plan = Plan(rounds=1, participants=2, local=LocalTraining(steps=1, batch_size=2, learning_rate=0.1))
    with pytest.raises(FedHVError, match=r"^The GPU's memory is too small for this\."):
        list(simulate(engine, Uniform(), plan))
