"""FedProx and SCAFFOLD against textbook implementations on torch's modules, over several rounds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problems import TASKS, Small, examples, quadratic

from fedhv import SCAFFOLD, FedProx, InputError, LocalTraining, Problem, Uniform
from fedhv.engines import Parallel, Sequential, Stacked
from fedhv.methods import CLIENT_SIDE, METHODS, make_method
from fedhv.problem.random import Purpose
from fedhv.protocol.cohort import minibatches, sample_cohort
from fedhv.simulation.rounds import Plan, initial_state, simulate

SIZES = (6, 9, 14, 20, 33)
RATE, SERVER, MU = 0.2, 0.8, 0.7
PLAN = Plan(rounds=5, participants=3, local=LocalTraining(4, 6, RATE), seed=2)


class Plain(Small):
    """Without dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = self.encoder[:2]


@pytest.fixture(scope="module")
def problem() -> Problem:
    parts = [examples(n, seed=n) for n in SIZES]
    clients = [(part.inputs, part.targets) for part in parts]
    return Problem.from_clients(Plain, TASKS, clients, clients[0])


def load(module, theta):
    torch.nn.utils.vector_to_parameters(theta.clone(), module.parameters())  # which become views of what is given


def flat(module):
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach().clone()


def batches(problem, cohort, k):
    """The minibatches of client k, the same that the package draws."""
    mine = problem.train[torch.from_numpy(problem.clients[k])]
    for positions in minibatches(cohort.stream(Purpose.MINIBATCHES, k), SIZES[k], cohort.local):
        yield mine[torch.from_numpy(positions)]


def mean_loss(module, batch):
    losses = [
        torch.nn.functional.cross_entropy(output, target)
        for output, target in zip(module(batch.inputs), batch.targets, strict=True)
    ]
    return sum(losses) / len(losses)


def textbook_fedprox(problem, x):
    module, models = Plain(), []
    for t in range(PLAN.rounds):
        cohort = sample_cohort(PLAN.seed, t, len(SIZES), PLAN.participants, PLAN.local)
        after = []
        for k in cohort.clients:
            load(module, x)
            start = [p.detach().clone() for p in module.parameters()]
            optimiser = torch.optim.SGD(module.parameters(), lr=RATE)
            for batch in batches(problem, cohort, k):
                optimiser.zero_grad()
                near = sum((p - p0).square().sum() for p, p0 in zip(module.parameters(), start, strict=True))
                (mean_loss(module, batch) + MU / 2 * near).backward()
                optimiser.step()
            after.append(flat(module))
        x = x + SERVER * (torch.stack(after).mean(dim=0) - x)
        models.append(x)
    return models


def textbook_scaffold(problem, x):
    """Algorithm 1 of the paper with option II, in double precision."""
    module, models = Plain().double(), []
    x = x.double()
    c, own = torch.zeros_like(x), {k: torch.zeros_like(x) for k in range(len(SIZES))}
    K, N = PLAN.local.steps, len(SIZES)
    for t in range(PLAN.rounds):
        cohort = sample_cohort(PLAN.seed, t, N, PLAN.participants, PLAN.local)
        dy, dc = torch.zeros_like(x), torch.zeros_like(x)
        for k in cohort.clients:
            y = x.clone()
            for batch in batches(problem, cohort, k):
                load(module, y)
                batch = type(batch)(batch.inputs.double(), batch.targets)
                gradients = torch.autograd.grad(mean_loss(module, batch), list(module.parameters()))
                y = y - RATE * (torch.cat([g.ravel() for g in gradients]) - own[k] + c)
            new = own[k] - c + (x - y) / (K * RATE)
            dy += y - x
            dc += new - own[k]
            own[k] = new
        x = x + SERVER * dy / len(cohort)
        c = c + dc / N
        models.append(x.float())
    return models


CASES = {
    "fedprox": (FedProx(mu=MU, local_lr=RATE, server_lr=SERVER), textbook_fedprox),
    "scaffold": (SCAFFOLD(local_lr=RATE, server_lr=SERVER), textbook_scaffold),
}
ENGINES = {"sequential": Sequential, "parallel": lambda problem: Parallel(problem, workers=2), "stacked": Stacked}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_it_is_the_textbooks_method_on_every_engine(name, engine, problem):
    method, textbook = CASES[name]
    with ENGINES[engine](problem) as place:
        start = initial_state(place, method, PLAN.seed).model
        found = [finished.state.model for finished in simulate(place, method, PLAN)]
    expected = textbook(problem, start)
    assert (found[-1] - start).norm() > 0.1
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_it_differs_from_federated_averaging(name, problem):
    ours, plain = (
        list(simulate(Sequential(problem), method, PLAN))[-1].state.model
        for method in (CASES[name][0], Uniform(local_lr=RATE, server_lr=SERVER))
    )
    assert (ours - plain).norm() > 1e-3


def test_without_a_proximal_term_fedprox_is_federated_averaging(problem):
    ours, plain = (simulate(Sequential(problem), method, PLAN) for method in (FedProx(mu=0.0), Uniform()))
    for one, other in zip(ours, plain, strict=True):
        assert torch.equal(one.state.model, other.state.model)
        assert one.traffic == other.traffic


def test_scaffold_by_hand():
    # The quadratic problem, K = 1, η_ℓ = ½, both clients: the gradient of the mean loss at θ is
    # g_k = (θ − mean of the two targets, ½(h − target)) with targets (1, 1), (2, 0) on the plane and ±1 for h.
    # Round 1: c = c_k = 0, so θ = −½·mean(g) = (0.75, 0.25), h = ±¼; c_k = g_k, c = mean(g) = (−1.5, −0.5, −½, ½).
    # Round 2: every client's corrected gradient is g_k(θ) − g_k(0) + c = θ-part (0.75, 0.25) + c = (−0.75, −0.25).
    plan = Plan(rounds=2, participants=2, local=LocalTraining(1, 2, 0.5))
    first, second = simulate(Sequential(quadratic()), SCAFFOLD(local_lr=0.5), plan)
    np.testing.assert_allclose(first.state.model, [0.75, 0.25, 0.25, -0.25], rtol=1e-6)
    np.testing.assert_allclose(first.state.memory["control"], [-1.5, -0.5, -0.5, 0.5], rtol=1e-6)
    np.testing.assert_allclose(first.kept[1]["control"], [-2.0, 0.0, -0.5, 0.5], atol=1e-6)
    np.testing.assert_allclose(second.state.model, [1.125, 0.375, 0.4375, -0.4375], rtol=1e-6)


def test_scaffold_sends_two_models_in_each_direction(problem):
    d = Sequential(problem).layout.d
    first = next(simulate(Sequential(problem), SCAFFOLD(), PLAN))
    assert (first.traffic.down, first.traffic.up) == (4 * 3 * 2 * d, 4 * 3 * 2 * d)


def test_scaffold_refuses_momentum_at_the_clients(problem):
    plan = Plan(rounds=1, participants=2, local=LocalTraining(2, 4, 0.1, momentum=0.9))
    with pytest.raises(InputError, match=r"plain SGD on the clients \(`training.momentum = 0`\). Found SGD") as caught:
        next(simulate(Sequential(problem), SCAFFOLD(), plan))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("mu", [-1.0, float("nan"), float("inf"), "much"])
def test_a_mu_that_means_nothing_is_refused(mu):
    with pytest.raises(InputError, match="`mu` should be at least 0 and finite"):
        make_method("fedprox", {"mu": mu})


def test_studies_compare_the_methods_of_the_paper_unless_they_name_others():
    assert list(METHODS) == ["fedhv", "uniform", "fsmgda", "fedcmoo"]
    for name in CLIENT_SIDE:
        assert make_method(name).label == name
