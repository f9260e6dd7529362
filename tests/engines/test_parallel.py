"""Worker processes give the sequential engine's bits, whatever their number and whatever becomes of them."""

from __future__ import annotations

import multiprocessing
import os
import signal
from functools import cache

import numpy as np
import pytest
import torch
from problems import everything_random
from torch import nn

from fedhv import FSMGDA, FedCMOO, FedHV, FedHVError, LocalTraining, Problem, Uniform, classification
from fedhv.engines import Parallel, Sequential, choose_engine
from fedhv.protocol.client import Client
from fedhv.protocol.cohort import sample_cohort
from fedhv.protocol.exchange import Call
from fedhv.protocol.requests import Train
from fedhv.simulation.rounds import Plan, initial_state, rounds, simulate, simulate_together

REFERENCE = (3.0, 3.0)
REPORTS = tuple(FedHV(reference=REFERENCE, report=report) for report in (2, 1, "all"))
METHODS = (REPORTS[0], Uniform(), FSMGDA(), FedCMOO(), *REPORTS[1:])
PLAN = Plan(rounds=3, participants=4, local=LocalTraining(3, 8, 0.1, momentum=0.9))


@pytest.fixture(scope="module")
def problem() -> Problem:
    """Dropout, augmentation and unequal clients: everything random is at work."""
    return everything_random()


@cache
def one_after_the_other(method):
    """The sequential engine's rounds, which are the same for any number of workers."""
    return tuple(simulate(Sequential(everything_random()), method, PLAN))


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.label}{getattr(method, 'report', '')}")
def test_any_number_of_workers_gives_the_same_bits(problem, method, workers):
    with Parallel(problem, workers=workers) as engine:
        found = list(simulate(engine, method, PLAN))
    for one, other in zip(one_after_the_other(method), found, strict=True):
        assert torch.equal(one.state.model, other.state.model)
        assert one.weights == other.weights
        assert one.state.record.get("report") == other.state.record.get("report")
        assert one.traffic == other.traffic


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_evaluations_divided_among_workers_have_the_same_bits(problem, workers):
    plain = Sequential(problem)
    plain.chunk.size = 7  # 60 test examples in nine chunks
    theta = initial_state(plain, Uniform(), 3).model
    with Parallel(problem, workers=workers) as engine:
        engine.chunk.size = 7
        assert engine.evaluate(theta) == plain.evaluate(theta)
        assert len(engine.workers) == workers


def test_after_an_error_no_answer_is_taken_for_another(problem, monkeypatch):
    answer = Client.answer

    def failing(self, call, k):
        if k == cohort_clients[1] and call.request.report is None:
            raise FedHVError("not this one")
        return answer(self, call, k)

    cohort = sample_cohort(0, 0, len(problem.clients), 5, PLAN.local)
    cohort_clients = cohort.clients
    theta = initial_state(Sequential(problem), Uniform(), 0).model
    expected = Sequential(problem).ask(Call(Train(theta, report=1), cohort))
    monkeypatch.setattr(Client, "answer", failing)
    with Parallel(problem, workers=3) as engine:
        with pytest.raises(FedHVError, match="not this one"):
            engine.ask(Call(Train(theta), cohort))
        found = engine.ask(Call(Train(theta, report=1), cohort))
    assert torch.equal(found.mean_update, expected.mean_update)
    assert torch.equal(found.reports, expected.reports)


def test_more_clients_than_places_are_answered_in_order(problem):
    plan = Plan(rounds=1, participants=len(problem.clients), local=PLAN.local)
    (expected,) = simulate(Sequential(problem), METHODS[2], plan)
    with Parallel(problem, workers=1) as engine:
        assert engine._buffers.places < plan.participants
        (found,) = simulate(engine, METHODS[2], plan)
    assert torch.equal(expected.state.model, found.state.model)


def test_a_worker_that_dies_is_replaced_and_its_client_repeated(problem):
    expected = list(simulate(Sequential(problem), METHODS[0], PLAN))
    with Parallel(problem, workers=2) as engine:
        found = []
        for finished in simulate(engine, METHODS[0], PLAN):
            found.append(finished)
            os.kill(engine.workers[0], signal.SIGKILL)
        assert any("A worker process died" in note for note in engine.notes)
    assert torch.equal(found[-1].state.model, expected[-1].state.model)


def test_a_client_that_keeps_killing_its_worker_stops_the_run(problem, monkeypatch):
    answer = Client.answer

    def deadly(self, call, k):
        if k == cohort_clients[1]:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer(self, call, k)

    cohort = sample_cohort(0, 0, len(problem.clients), 3, PLAN.local)
    cohort_clients = cohort.clients
    monkeypatch.setattr(Client, "answer", deadly)
    with Parallel(problem, workers=2) as engine:
        theta = initial_state(engine, Uniform(), 0).model
        with pytest.raises(
            FedHVError, match=rf"Client {cohort_clients[1]} in round 1 ended its worker process 3 times"
        ):
            engine.ask(Call(Train(theta), cohort))


def test_what_goes_wrong_in_a_worker_is_said_by_the_engine():
    class Fragile(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, inputs):
            if self.training:
                raise RuntimeError("no training today")
            return [self.layer(inputs)]

    client = (np.zeros((4, 2), np.float32), [np.zeros(4, np.int64)])
    problem = Problem.from_clients(Fragile, [classification("only", 2)], [client], client)
    with Parallel(problem, workers=1) as engine, pytest.raises(RuntimeError, match=r"Client 0 .*no training today"):
        next(simulate(engine, Uniform(), Plan(1, 1, PLAN.local)))


def test_no_process_is_left_behind(problem):
    with Parallel(problem, workers=2) as engine:
        next(simulate(engine, Uniform(), PLAN))
        workers = engine.workers
        assert len(workers) == 2
        assert set(workers) <= {child.pid for child in multiprocessing.active_children()}
    assert not set(workers) & {child.pid for child in multiprocessing.active_children()}


def test_gradients_of_another_run_are_never_taken_for_ones_own(problem):
    plans = [Plan(2, 3, PLAN.local, seed=seed) for seed in (0, 1)]
    with Parallel(problem, workers=2) as engine:
        runs = [
            rounds(engine.layout, engine.population, FedCMOO(), plan, initial_state(engine, FedCMOO(), plan.seed))
            for plan in plans
        ]
        together = [(i, finished.state.model) for i, finished in simulate_together(engine, runs)]
    for i, plan in enumerate(plans):
        alone = [finished.state.model for finished in simulate(Sequential(problem), FedCMOO(), plan)]
        found = [model for who, model in together if who == i]
        assert len(found) == len(alone) == 2
        assert all(torch.equal(a, b) for a, b in zip(found, alone, strict=True))


def test_auto_takes_the_workers_where_there_are_cores(monkeypatch):
    monkeypatch.setattr("fedhv.engines.choosing.usable_cores", lambda: 2)
    assert choose_engine("auto", "cpu").engine == "parallel"
    monkeypatch.setattr("fedhv.engines.choosing.usable_cores", lambda: 1)
    assert choose_engine("auto", "cpu").engine == "sequential"
