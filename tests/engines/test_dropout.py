"""Models that draw give the same run on every engine, resumed or not, together with others or alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedhv import FSMGDA, FedCMOO, FedHV, LocalTraining, Problem, Uniform, classification
from fedhv.engines import Parallel, Sequential, Stacked
from fedhv.engines.compiled import Compiled
from fedhv.engines.mappable import why_not_mappable
from fedhv.problem.counter import bits
from fedhv.simulation.rounds import Plan, initial_state, rounds, simulate, simulate_together

METHODS = (FedHV(reference=(3.0, 3.0)), Uniform(), FSMGDA(), FedCMOO())
PLAN = Plan(rounds=3, participants=4, local=LocalTraining(3, 8, 0.05, momentum=0.5))


class Dropping(nn.Module):
    """Draws in six ways: layers, attention, functions, noise."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(6, 8)
        self.channels = nn.Dropout1d(0.3)
        self.attention = nn.MultiheadAttention(4, 2, dropout=0.3, batch_first=True)
        self.alpha = nn.AlphaDropout(0.2)
        self.heads = nn.ModuleList([nn.Sequential(nn.Dropout(0.5), nn.Linear(8, n)) for n in (3, 2)])

    def forward(self, inputs: Tensor) -> list[Tensor]:
        hidden = self.channels(F.relu(self.encoder(inputs)).view(-1, 2, 4))
        hidden = hidden + self.attention(hidden, hidden, hidden, need_weights=False)[0]
        shared = F.dropout(self.alpha(hidden.flatten(1)), 0.2, self.training)
        if self.training:
            shared = shared + 0.1 * torch.rand_like(shared)
        return [head(shared) for head in self.heads]


@pytest.fixture(scope="module")
def problem() -> Problem:
    rng = np.random.default_rng(7)

    def client(n: int):
        return rng.standard_normal((n, 6)).astype(np.float32), [rng.integers(0, 3, n), rng.integers(0, 2, n)]

    tasks = [classification("kind", 3), classification("size", 2)]
    return Problem.from_clients(Dropping, tasks, [client(n) for n in (3, 9, 20, 33, 12)], client(30))


def models(engine, method, plan=PLAN, **options) -> list[Tensor]:
    return [each.state.model for each in simulate(engine, method, plan, **options)]


def close(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(float((x - y).norm() / y.norm()) < 1e-5 for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_engine_draws_the_same(problem, method):
    """Clients with less than a minibatch included: a stack fills theirs up."""
    assert why_not_mappable(problem) is None
    loop = models(Sequential(problem), method)
    assert close(models(Stacked(problem), method), loop)
    with Parallel(problem, workers=2) as engine:
        assert all(torch.equal(a, b) for a, b in zip(models(engine, method), loop, strict=True))


class Drawing(nn.Module):
    """Draws in a layer, in a function and as noise; fewer draws are compiled in less time."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.dropout = nn.Linear(6, 8), nn.Dropout(0.5)
        self.heads = nn.ModuleList([nn.Linear(8, n) for n in (3, 2)])

    def forward(self, inputs: Tensor) -> list[Tensor]:
        shared = F.dropout(self.dropout(F.relu(self.encoder(inputs))), 0.2, self.training)
        if self.training:
            shared = shared + 0.1 * torch.rand_like(shared)
        return [head(shared) for head in self.heads]


@pytest.mark.slow
def test_a_compiled_stack_draws_the_same(problem):
    problem = replace(problem, model=Drawing)
    plan = Plan(rounds=1, participants=3, local=LocalTraining(2, 8, 0.05))
    assert close(models(Stacked(problem, compiled=True), Uniform(), plan), models(Sequential(problem), Uniform(), plan))


def test_a_compiled_stack_gives_the_same_bits():
    """Three axes, the last as long as a vector: a product of coordinates alone went wrong here."""
    stack = torch.tensor([5, -9, 2**62])

    def function(keys: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(lambda key: bits(key, 2, (5, 4, 16), torch.device("cpu")))(keys)

    assert torch.equal(Compiled(function)(stack), function(stack))


@pytest.mark.parametrize("kind", [Sequential, Stacked])
def test_what_torch_s_generator_did_before_changes_nothing(problem, kind):
    torch.manual_seed(1)
    first = models(kind(problem), Uniform())
    torch.manual_seed(2)
    assert all(torch.equal(a, b) for a, b in zip(models(kind(problem), Uniform()), first, strict=True))
    other = Plan(PLAN.rounds, PLAN.participants, PLAN.local, seed=1)
    start = initial_state(kind(problem), Uniform(), 0)
    assert not torch.equal(models(kind(problem), Uniform(), other, state=start)[0], first[0])


@pytest.mark.parametrize("kind", [Sequential, Stacked])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_resumed_run_is_an_uninterrupted_one(problem, kind, method):
    engine = kind(problem)
    whole = list(simulate(engine, method, PLAN))
    rest = models(kind(problem), method, state=whole[0].state, start=1)
    assert [each.state.model.tolist() for each in whole[1:]] == [model.tolist() for model in rest]


def test_a_run_does_not_depend_on_those_it_is_stacked_with_nor_on_portions(problem):
    engine = Stacked(problem)
    plans = [Plan(PLAN.rounds, PLAN.participants, PLAN.local, seed=seed) for seed in range(len(METHODS))]
    runs = [
        rounds(engine.layout, len(problem.clients), method, plan, initial_state(engine, method, plan.seed))
        for method, plan in zip(METHODS, plans, strict=True)
    ]
    together: dict[int, list[Tensor]] = {}
    for i, finished in simulate_together(engine, runs):
        together.setdefault(i, []).append(finished.state.model)
    for i, (method, plan) in enumerate(zip(METHODS, plans, strict=True)):
        pieces = Stacked(problem)
        pieces.training.most.size = 3
        assert close(together[i], models(Stacked(problem), method, plan))
        assert close(together[i], models(pieces, method, plan))
