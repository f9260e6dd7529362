"""Machines that lack something: no GPU, no fork, another C library, too little memory. Each has one clear answer."""

from __future__ import annotations

import multiprocessing
import sys

import pytest
import torch

from fedhv import FedHVError, InputError, LocalTraining, Train
from fedhv.engines import Parallel, Stacked, choose_engine, choosing, heap, parallel
from fedhv.problem.initial import initial_model
from fedhv.protocol.cohort import sample_cohort
from fedhv.protocol.exchange import Call


def test_a_machine_with_a_gpu_stacks_in_tf32(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    choice = choose_engine()
    assert (choice.engine, choice.device.type, choice.precision) == ("stacked", "cuda", "tf32")
    assert "GPU" in choice.reason


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=r"finds no GPU\. Use --device cpu"):
        choose_engine(device="cuda")
    with pytest.raises(InputError, match="Unknown device 'abacus'"):
        choose_engine(device="abacus")
    with pytest.raises(InputError, match="needs a GPU"):
        choose_engine("sequential", "cpu", "tf32")


def test_a_system_that_cannot_fork_computes_one_client_after_the_other(monkeypatch, quadratic_problem):
    monkeypatch.setattr(choosing, "can_fork", lambda: False)
    monkeypatch.setattr(parallel, "can_fork", lambda: False)
    assert choose_engine(device="cpu").engine == "sequential"
    with pytest.raises(InputError, match=r"can fork\. Use --engine sequential"):
        Parallel(quadratic_problem)


def test_a_process_among_several_starts_no_workers_of_its_own(monkeypatch):
    monkeypatch.setattr(multiprocessing, "parent_process", object)
    choice = choose_engine(device="cpu")
    assert (choice.engine, choice.reason) == ("sequential", "this is one of several processes")


def test_a_precision_that_an_engine_lacks_is_refused(quadratic_problem):
    with pytest.raises(InputError, match=r"computes in float32\. Found 'bf16'"):
        Parallel(quadratic_problem, precision="bf16")


def test_another_c_library_is_left_alone(monkeypatch):
    heap._function.cache_clear()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert heap.keep_freed_memory() is False
    heap.give_memory_back()  # nothing to do, and no error
    heap._function.cache_clear()


def test_a_c_library_without_the_functions_is_left_alone(monkeypatch):
    heap._function.cache_clear()
    monkeypatch.setattr(heap.ctypes, "CDLL", lambda name: object())
    assert heap.keep_freed_memory() is False
    heap._function.cache_clear()


def test_one_client_that_does_not_fit_into_memory_is_an_error(quadratic_problem, monkeypatch):
    engine = Stacked(quadratic_problem)

    class Full:
        def forget(self):
            pass

        def __call__(self, *_):
            raise torch.cuda.OutOfMemoryError("full")

    monkeypatch.setattr(engine.training, "recorder", Full())
    local = LocalTraining(steps=2, batch_size=2, learning_rate=0.1)
    cohort = sample_cohort(0, 0, len(quadratic_problem.clients), 2, local)
    with pytest.raises(FedHVError, match="does not fit into the GPU's memory"):
        engine.ask(Call(Train(initial_model(quadratic_problem.model, 1)), cohort))
