"""Every architecture of the zoo is stacked, and moves as it does one client after the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from zoo import CLASSES, TINY, WORDS, ZOO

from fedhv import FSMGDA, LocalTraining, Problem, Uniform, classification
from fedhv.engines import Sequential, Stacked, choose_engine
from fedhv.simulation.rounds import Plan, initial_state, simulate

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")  # torch's, about its own speed on a CPU

PLAN = Plan(rounds=2, participants=3, local=LocalTraining(steps=2, batch_size=4, learning_rate=0.002))
CLIENTS = [3, 9, 6, 5]  # one holds less than a minibatch

names = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.skipif(not each.installed, reason=f"{each.package} is not installed"))
        for name, each in ZOO.items()
    ],
)


@names
@pytest.mark.parametrize(
    ("method", "plan"), [(Uniform(), PLAN), (FSMGDA(), replace(PLAN, rounds=1))], ids=["uniform", "fsmgda"]
)
def test_a_stack_of_every_architecture_moves_as_a_loop_does(name, method, plan):
    problem = ZOO[name].problem(TINY, CLIENTS, test=6)
    stack = Stacked(problem)
    start = initial_state(stack, method, plan.seed).model
    for one, other in zip(simulate(Sequential(problem), method, plan), simulate(stack, method, plan), strict=True):
        # Relative to how far the run has moved: θ itself is much longer.
        assert (other.state.model - one.state.model).norm() < 1e-4 * (one.state.model - start).norm()
        assert other.weights == pytest.approx(one.weights, abs=1e-4)
        if one.evaluation is not None:
            assert other.evaluation.mean_loss == pytest.approx(one.evaluation.mean_loss, rel=1e-4)
    assert stack.obstacle is None
    assert stack.notes == []


@names
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_every_architecture_is_found_to_be_stackable(name, precision):
    choice = choose_engine("stacked", "cpu", precision, ZOO[name].problem(TINY, CLIENTS, test=6))
    assert (choice.engine, choice.reason) == ("stacked", "as requested")


@names
def test_bf16_is_near_float32_in_both_engines(name):
    problem = ZOO[name].problem(TINY, CLIENTS, test=6)
    exact, loop, stack = (
        next(simulate(engine, Uniform(), PLAN)).state.model
        for engine in (Sequential(problem), Sequential(problem, precision="bf16"), Stacked(problem, precision="bf16"))
    )
    for rounded in (loop, stack):
        assert not torch.equal(rounded, exact)
        assert (rounded - exact).norm() / exact.norm() < 1e-3


class Pair(nn.Module):
    """Words and a picture's features: keywords where inputs are a dict, positional arguments where they are a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.features = nn.Embedding(WORDS, 8), nn.Linear(6, 8)
        self.heads = nn.ModuleList(nn.Linear(8, count) for count in CLASSES)

    def forward(self, words, features):
        shared = torch.relu(self.words(words).mean(dim=1) + self.features(features))
        return [head(shared) for head in self.heads]


@pytest.mark.parametrize("kind", [dict, tuple])
def test_a_model_with_several_inputs_moves_as_a_loop_does(kind):
    rng = np.random.default_rng(2)

    def examples(n: int):
        parts = {"words": rng.integers(0, WORDS, (n, 5)), "features": rng.standard_normal((n, 6), dtype=np.float32)}
        inputs = parts if kind is dict else tuple(parts.values())
        return inputs, [rng.integers(0, count, n) for count in CLASSES]

    tasks = [classification("first", CLASSES[0]), classification("second", CLASSES[1])]
    problem = Problem.from_clients(Pair, tasks, [examples(n) for n in CLIENTS], examples(6))
    assert choose_engine("stacked", "cpu", problem=problem).engine == "stacked"
    one, other = (
        list(simulate(engine, Uniform(), PLAN))[-1].state.model for engine in (Sequential(problem), Stacked(problem))
    )
    assert (other - one).norm() / one.norm() < 1e-6
