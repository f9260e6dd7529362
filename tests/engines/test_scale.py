"""A million clients are two arrays, a round costs what its participants cost, and large cohorts are streamed."""

from __future__ import annotations

import gc
import tracemalloc
import weakref

import numpy as np
import pytest
import torch
from problems import Small, everything_random, examples
from torch import Tensor

from fedhv import FSMGDA, FedCMOO, FedHV, LocalTraining, Problem, Uniform
from fedhv.engines import Parallel, Sequential, Stacked
from fedhv.engines import parts as parts_module
from fedhv.engines.parts import parts
from fedhv.problem.partition import partition
from fedhv.problem.problem import Benchmark, Clients
from fedhv.protocol.cohort import sample_cohort
from fedhv.protocol.exchange import Call, Collector, collect
from fedhv.protocol.requests import Train, TrainReply
from fedhv.simulation.rounds import Plan, simulate

MILLION = 1_000_000
LOCAL = LocalTraining(2, 4, 0.1)
PLAN = Plan(rounds=2, participants=10, local=LOCAL, evaluate_every=0)
METHOD = FedHV(reference=(3.0, 3.0))


def problem_of(clients: int) -> Problem:
    train = examples(24_000, seed=1)
    benchmark = Benchmark("many", Small, everything_random().tasks, train, examples(60, seed=2))
    return Problem.divide(benchmark, partition(np.full(clients, 5), len(train)))


@pytest.fixture(scope="module")
def few() -> Problem:
    return problem_of(1_000)


@pytest.fixture(scope="module")
def many() -> Problem:
    return problem_of(MILLION)


def peak(action) -> int:
    """Bytes that Python and NumPy allocate on top of what is there, at most."""
    action()  # what is made once and kept is not a cost of the action
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_million_clients_are_their_index_lists():
    gc.collect()
    before = len(gc.get_objects())
    clients = partition(np.full(MILLION, 5), 24_000)
    gc.collect()
    assert len(gc.get_objects()) - before < 1_000
    assert clients.indices.nbytes + clients.offsets.nbytes == 8 * (5 * MILLION + MILLION + 1)
    assert len(clients) == MILLION
    assert len(set(clients[MILLION - 1].tolist())) == 5


def test_a_division_of_one_stratum_is_the_same_served_together_or_one_by_one():
    """Client by client, quotas come off one shuffled pool; when it is empty, all others come back, reshuffled."""
    sizes = np.random.default_rng(4).integers(1, 20, 200)
    together = partition(sizes, 50, seed=6)
    for client in together:
        assert len(set(client.tolist())) == len(client)
    whole = np.flatnonzero(np.cumsum(sizes) <= 50)
    first = np.concatenate([together[k] for k in whole])
    assert len(set(first.tolist())) == len(first)
    assert together.indices[:12].tolist() == [15, 23, 41, 10, 6, 48, 5, 34, 39, 45, 49, 35]
    assert int((together.indices * np.arange(1, len(together.indices) + 1)).sum() % 1_000_003) == 144755


def test_sampling_a_cohort_allocates_for_its_members_alone():
    costs = [peak(lambda n=n: sample_cohort(0, 3, n, 10, LOCAL)) for n in (1_000, MILLION)]
    assert costs[1] < costs[0] + 8_000
    assert costs[1] < MILLION // 10


@pytest.mark.parametrize("kind", [Sequential, Stacked])
def test_a_round_allocates_and_looks_up_the_same_whatever_the_population(few, many, kind, monkeypatch):
    lookups: list[int] = []
    getitem = Clients.__getitem__
    monkeypatch.setattr(Clients, "__getitem__", lambda self, k: lookups.append(k) or getitem(self, k))
    costs, counts = [], []
    for problem in (few, many):
        engine = kind(problem)
        lookups.clear()
        list(simulate(engine, METHOD, PLAN))
        counts.append(len(lookups))
        costs.append(peak(lambda engine=engine: list(simulate(engine, METHOD, PLAN))))
    assert counts[0] == counts[1] <= 8 * PLAN.participants * PLAN.rounds
    assert costs[1] < 1.1 * costs[0] + 20_000


def test_workers_get_only_what_their_client_needs(many):
    """What is sent does not grow with the population or with the cohort."""
    sizes = {}
    for participants in (2, 40):
        cohort = sample_cohort(0, 0, MILLION, participants, LOCAL)
        with Parallel(many, workers=1) as engine:
            theta = torch.zeros(engine.layout.d)
            sent = []
            engine.ask(Call(Train(theta), cohort).of(cohort.clients[:1]))  # makes room; what follows is the same again
            connection = engine._pool._workers[0].connection

            class Counting:
                def __init__(self, inner):
                    self.inner = inner

                def send(self, errand, sent=sent):
                    from multiprocessing.reduction import ForkingPickler

                    sent.append(len(ForkingPickler.dumps(errand)))
                    self.inner.send(errand)

                def __getattr__(self, name):
                    return getattr(self.inner, name)

            engine._pool._workers[0].connection = Counting(connection)
            engine.ask(Call(Train(theta), cohort))
            # places for answers, whatever the cohort
            assert engine._buffers.places == engine._buffers._answers.shape[0] == 2
        assert len(sent) == participants
        sizes[participants] = max(sent)
    assert abs(sizes[40] - sizes[2]) < 16
    assert sizes[40] < 2_000


class Big(Tensor):
    """A tensor that can be watched."""


def test_at_most_one_update_is_held_beside_the_sum(few):
    cohort = sample_cohort(0, 0, len(few.clients), 500, LOCAL)
    engine = Sequential(few)
    theta, alive, most = torch.zeros(engine.layout.d), weakref.WeakSet(), 0

    def answers():
        nonlocal most
        for _ in cohort.clients:
            update = torch.ones(engine.layout.d).as_subclass(Big)
            alive.add(update)
            most = max(most, len(alive))
            yield TrainReply(update, torch.ones(2))
            del update

    replies = collect(Call(Train(theta, report=1), cohort), engine.layout, answers(), engine.client.holding)
    assert most <= 2
    assert torch.equal(replies.mean_update, torch.ones(engine.layout.d))
    assert replies.reports.shape == (500, 2)


def test_a_large_cohort_is_split_into_parts_of_one_size():
    cohort = sample_cohort(0, 0, MILLION, 10_000, LOCAL)
    pieces = parts(cohort.clients)
    assert [k for piece in pieces for k in piece] == cohort.clients
    assert max(map(len, pieces)) <= parts_module.MOST
    assert len({len(piece) for piece in pieces[:-1]}) == 1


@pytest.mark.parametrize("method", [METHOD, Uniform(), FSMGDA(), FedCMOO()], ids=lambda method: method.label)
def test_a_streamed_cohort_gives_what_a_whole_one_gives(method, monkeypatch):
    problem = everything_random()
    plan = Plan(rounds=2, participants=5, local=LOCAL)
    whole = list(simulate(Sequential(problem), method, plan))
    engine = Sequential(problem)

    def in_parts(call):
        collector = Collector(call, engine.layout, engine.client.holding)
        for clients in parts(call.cohort.clients, most=2):
            collector.take_stack(clients, [engine.client.answer(call, k) for k in clients])
        return collector.replies()

    monkeypatch.setattr(engine, "ask", in_parts)
    pieces = list(simulate(engine, method, plan))
    for one, other in zip(whole, pieces, strict=True):
        assert torch.allclose(one.state.model, other.state.model, rtol=1e-5, atol=1e-7)
        assert one.state.record.get("report") == pytest.approx(other.state.record.get("report"))


def test_the_stacked_engine_streams_large_cohorts(few, monkeypatch):
    monkeypatch.setattr(parts_module.parts, "__defaults__", (4,))
    engine, sizes = Stacked(few), []
    compute = engine.training.compute
    monkeypatch.setattr(
        engine.training, "compute", lambda stack, shape: sizes.append(len(stack)) or compute(stack, shape)
    )
    plan = Plan(rounds=1, participants=10, local=LOCAL)
    start = list(simulate(Sequential(few), Uniform(), plan))
    (found,) = simulate(engine, Uniform(), plan)
    assert sizes == [4, 4, 2]
    assert found.traffic == start[0].traffic
