"""BatchNorm's policies against textbook loops with torch's own modules, on every engine, over several rounds."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache

import pytest
import torch
from problems import TASKS, examples
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedhv import FSMGDA, SCAFFOLD, FedCMOO, FedHV, FedProx, LocalTraining, Problem, Uniform
from fedhv.engines import Parallel, Sequential, Stacked
from fedhv.engines.mappable import why_not_mappable
from fedhv.engines.trial_run import check_model
from fedhv.methods.parts.server import ServerOptimiser
from fedhv.problem.random import Purpose, torch_seed
from fedhv.protocol.cohort import minibatches, sample_cohort
from fedhv.simulation.rounds import Plan, simulate

SIZES = (4, 9, 14, 20, 33)
"""The first client has fewer examples than a minibatch."""
RATE, SERVER = 0.2, 0.8
PLAN = Plan(rounds=6, participants=3, local=LocalTraining(4, 6, RATE, momentum=0.5), seed=2)
CLOSE = {"rtol": 2e-4, "atol": 2e-5}
ENGINES = {"sequential": Sequential, "parallel": lambda problem: Parallel(problem, workers=2), "stacked": Stacked}


class Normalised(nn.Module):
    """BatchNorm in the encoder and in a head; the encoder's is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8, momentum=0.3)
        self.second = nn.Linear(8, 8)
        self.heads = nn.ModuleList([nn.Linear(8, 3), nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 4))])
        with torch.no_grad():  # a model that starts elsewhere than torch's layers do
            self.norm.running_mean.add_(0.1)
            self.norm.weight.mul_(0.9)

    def forward(self, inputs: Tensor) -> list[Tensor]:
        features = torch.relu(self.norm(self.first(inputs)))
        features = torch.relu(self.norm(self.second(features)))
        return [head(features) for head in self.heads]


def problem(norm: str, model=Normalised) -> Problem:
    parts = [examples(n, seed=n) for n in SIZES]
    clients = [(part.inputs, part.targets) for part in parts]
    return Problem.from_clients(model, TASKS, clients, clients[0], norm=norm)


def played(engine, method, norm, plan=PLAN):
    with ENGINES[engine](problem(norm)) as place:
        rounds = list(simulate(place, method, plan))
        assert getattr(place, "obstacle", None) is None, "the stack was given up"
        return rounds, place.client.network


def made(seed=PLAN.seed) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, Purpose.MODEL))
        return Normalised()


def train(module, whole, cohort, k):
    """K steps of torch.optim.SGD on torch's modules, with the minibatches that the package draws."""
    module.train()
    optimiser = torch.optim.SGD(module.parameters(), lr=RATE, momentum=0.5)
    mine = whole.train[torch.from_numpy(whole.clients[k])]
    for positions in minibatches(cohort.stream(Purpose.MINIBATCHES, k), SIZES[k], cohort.local):
        batch = mine[torch.from_numpy(positions)]
        optimiser.zero_grad()
        pairs = zip(module(batch.inputs), batch.targets, strict=True)
        (sum(nn.functional.cross_entropy(output, target) for output, target in pairs) / 2).backward()
        optimiser.step()


def floats(module):
    return {name: value.clone() for name, value in module.state_dict().items() if value.is_floating_point()}


@cache
def textbook_average(by_examples):
    whole, server = problem("average"), made()
    models = []
    for t in range(PLAN.rounds):
        cohort = sample_cohort(PLAN.seed, t, len(SIZES), PLAN.participants, PLAN.local)
        shares = torch.tensor([float(SIZES[k]) if by_examples else 1.0 for k in cohort.clients])
        shares = shares / shares.sum()
        before, after = floats(server), []
        for k in cohort.clients:
            module = copy.deepcopy(server)
            train(module, whole, cohort, k)
            after.append(floats(module))
        mean = {name: sum(s * each[name] for s, each in zip(shares, after, strict=True)) for name in before}
        for name, value in before.items():  # statistics are averaged; the server's rate is for parameters
            rate = 1.0 if "running" in name else SERVER
            server.state_dict()[name].copy_(value + rate * (mean[name] - value))
        models.append(floats(server))
    return models


@cache
def textbook_fedbn():
    """Algorithm 1 of Li et al. 2021: every client's own BatchNorm layers, everything else averaged."""
    whole, server = problem("local"), made()
    local = {f"{n}.{k}" for n, layer in server.named_modules() if isinstance(layer, _BatchNorm) for k in floats(layer)}
    own = {k: copy.deepcopy(server) for k in range(len(SIZES))}
    models = []
    for t in range(PLAN.rounds):
        cohort = sample_cohort(PLAN.seed, t, len(SIZES), PLAN.participants, PLAN.local)
        before = floats(server)
        for k in cohort.clients:
            for name in before.keys() - local:
                own[k].state_dict()[name].copy_(before[name])
            train(own[k], whole, cohort, k)
        for name in before.keys() - local:
            mean = sum(own[k].state_dict()[name] for k in cohort.clients) / len(cohort)
            server.state_dict()[name].copy_(before[name] + SERVER * (mean - before[name]))
        models.append(floats(server))
    return models, {k: {name: floats(own[k])[name] for name in local} for k in own}


@pytest.mark.parametrize("average", ["clients", "examples"])
@pytest.mark.parametrize("engine", ENGINES)
def test_average_is_a_loop_over_torchs_modules_whose_statistics_are_averaged(engine, average):
    found, network = played(engine, Uniform(server_lr=SERVER, local_lr=RATE), "average", replace(PLAN, average=average))
    for round, expected in zip(found, textbook_average(average == "examples"), strict=True):
        state = network.state_dict(round.state.model)
        for name, value in expected.items():
            torch.testing.assert_close(state[name], value, **CLOSE, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("engine", ENGINES)
def test_local_is_fedbn(engine):
    found, network = played(engine, Uniform(server_lr=SERVER, local_lr=RATE), "local")
    models, own = textbook_fedbn()
    for round, expected in zip(found, models, strict=True):
        state = network.state_dict(round.state.model)
        for name, value in expected.items():
            torch.testing.assert_close(state[name], value, **CLOSE)
    start = network.state_dict(found[0].state.model)
    assert torch.equal(start["norm.running_mean"], made().norm.running_mean)
    kept = {k: each for round in found for k, each in round.kept.items()}
    assert set(kept) == set(range(len(SIZES)))
    for k, each in kept.items():
        whole = found[-1].state.model.masked_scatter(network.layout.resident_entries, each["norm.0"])
        mine = network.state_dict(whole)
        for name, value in own[k].items():
            torch.testing.assert_close(mine[name], value, **CLOSE)


METHODS = {
    "fedhv": FedHV(reference=(6.0, 6.0), report=2, server_lr=1.1, local_lr=RATE),
    "fsmgda": FSMGDA(local_lr=RATE),
    "fedcmoo": FedCMOO(local_lr=RATE, server_lr=1.2),
    "fedprox": FedProx(mu=0.5, local_lr=RATE),
    "scaffold": SCAFFOLD(local_lr=RATE),
}


@pytest.mark.parametrize("norm", ["frozen", "local", "average", "group"])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_the_same_on_every_engine(name, norm):
    local = replace(PLAN.local, momentum=0.0 if name == "scaffold" else 0.5, clip=None if name == "scaffold" else 2.0)
    plan = replace(PLAN, rounds=2, local=local)  # in the second some go on with what they keep, others begin
    sequential, parallel, stacked = (played(engine, METHODS[name], norm, plan)[0] for engine in ENGINES)
    for one, two, three in zip(sequential, parallel, stacked, strict=True):
        assert torch.equal(one.state.model, two.state.model)
        torch.testing.assert_close(one.state.model, three.state.model, rtol=2e-3, atol=2e-4)
        assert one.traffic == two.traffic == three.traffic
        assert one.kept.keys() == two.kept.keys() == three.kept.keys()
        for k, kept in one.kept.items():
            for key, value in kept.items():
                assert torch.equal(value, two.kept[k][key])
                torch.testing.assert_close(value, three.kept[k][key], rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("sampling", ["epochs", "replacement"])
@pytest.mark.parametrize("name", ["fsmgda", "fedhv"])
def test_clients_that_make_different_numbers_of_steps_and_keep_their_optimiser_are_stacked_too(name, sampling):
    # Not Adam: a bias before BatchNorm has a gradient of zero, and Adam steps along the rounding of it.
    local = LocalTraining(batch_size=6, epochs=1, momentum=0.5, nesterov=True, weight_decay=0.01, keep_state=True)
    local = replace(local, sampling=sampling)
    for norm in ("average", "local"):
        plan = replace(PLAN, local=local)
        one, three = (played(engine, METHODS[name], norm, plan)[0][-1] for engine in ("sequential", "stacked"))
        torch.testing.assert_close(one.state.model, three.state.model, rtol=2e-3, atol=2e-4)


def test_statistics_travel_and_local_layers_do_not():
    trained = {norm: played("sequential", Uniform(), norm)[0][0].traffic for norm in ("frozen", "average", "local")}
    d, statistics = sum(p.numel() for p in Normalised().parameters()), 4 * 8
    affine = 4 * 8
    scalar = 4 * PLAN.participants
    assert trained["frozen"].down == scalar * d == trained["frozen"].up
    assert trained["average"].down == scalar * (d + statistics) == trained["average"].up
    assert trained["local"].down == scalar * (d - affine) == trained["local"].up


def test_task_updates_count_statistics_once_a_task():
    with Sequential(problem("average")) as engine:
        (first, *_) = simulate(engine, FSMGDA(), replace(PLAN, rounds=1))
        layout = engine.layout
    heads = layout.d_head(0) + layout.d_head(1)
    assert layout.d == layout.d_shared + layout.d_statistics + heads
    assert first.traffic.up == 4 * PLAN.participants * (2 * (layout.d_shared + layout.d_statistics) + heads)


def test_a_servers_learning_rate_and_optimiser_leave_statistics_the_clients_mean():
    """With a large rate a running variance would end below zero, and the model with it."""
    plan = replace(PLAN, server=ServerOptimiser("momentum", 3.0, 0.9), local=replace(PLAN.local, learning_rate=1e-3))
    found, network = played("sequential", Uniform(server_lr=2.0, local_lr=1e-3), "average", plan)
    plain, _ = played("sequential", Uniform(local_lr=1e-3), "average", replace(plan, server=ServerOptimiser()))
    entries = network.layout.statistic_entries
    torch.testing.assert_close(found[0].state.model[entries], plain[0].state.model[entries])
    assert not torch.equal(found[0].state.model[~entries], plain[0].state.model[~entries])
    for round in found:
        state = network.state_dict(round.state.model)
        assert all(bool((value > 0).all()) for name, value in state.items() if name.endswith("running_var"))


class Convolved(nn.Module):
    """BatchNorm of images."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.BatchNorm2d(4)
        )
        self.heads = nn.ModuleList([nn.Linear(4, 3), nn.Linear(4, 4)])

    def forward(self, inputs: Tensor) -> list[Tensor]:
        features = self.body(inputs).mean(dim=(2, 3))
        return [head(features) for head in self.heads]


def images(norm: str) -> Problem:
    generator = torch.Generator().manual_seed(0)
    parts = [examples(n, seed=n) for n in SIZES]
    clients = [(torch.randn(len(p), 1, 7, 7, generator=generator), p.targets) for p in parts]
    return Problem.from_clients(Convolved, TASKS, clients, clients[0], norm=norm)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("norm", ["average", "local", "frozen"])
def test_images_in_a_stack_and_traced_for_the_compiler(norm, compiled, monkeypatch):
    # The graph is run as it was traced: what a compiler makes of it is not what is tested.
    monkeypatch.setattr(torch, "compile", lambda graph, **options: graph)
    whole, plan = images(norm), replace(PLAN, rounds=2)
    with Sequential(whole) as one, Stacked(whole, compiled=compiled) as many:
        expected, found = (list(simulate(engine, Uniform(local_lr=RATE), plan)) for engine in (one, many))
        assert many.obstacle is None
        assert many.training.compiles == compiled
    torch.testing.assert_close(found[-1].state.model, expected[-1].state.model, **CLOSE)


@pytest.mark.parametrize("norm", ["frozen", "local", "average", "group"])
def test_a_trial_finds_that_the_model_can_be_stacked(norm):
    check_model(problem(norm))
    assert why_not_mappable(problem(norm)) is None
    assert why_not_mappable(images(norm)) is None


@pytest.mark.parametrize("norm", ["average", "local"])
def test_reports_of_a_client_use_its_own_layers(norm):
    """The report of every client's second round is the loss that torch's modules in evaluation mode have."""
    with Sequential(problem(norm)) as engine:
        method = FedHV(reference=(9.0, 9.0), report="all", local_lr=RATE)
        plan = replace(PLAN, rounds=2, participants=len(SIZES))
        first, second = simulate(engine, method, plan)
        reports = []
        for k, n in enumerate(SIZES):
            theta = first.state.model
            if norm == "local":
                theta = theta.masked_scatter(engine.layout.resident_entries, first.kept[k]["norm.0"])
            module = Normalised()
            module.load_state_dict(engine.client.network.state_dict(theta))
            mine = engine.problem.train[torch.from_numpy(engine.problem.clients[k])]
            assert len(mine) == n
            pairs = zip(module.eval()(mine.inputs), mine.targets, strict=True)
            reports.append(torch.stack([nn.functional.cross_entropy(*pair) for pair in pairs]).detach())
    torch.testing.assert_close(
        torch.tensor(second.state.record["report"]).float(), torch.stack(reports).mean(dim=0), rtol=1e-4, atol=1e-5
    )
