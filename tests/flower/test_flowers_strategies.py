"""Five rounds of our methods are those of Flower's own strategies with textbook clients and the same minibatches.

Flower's loop, its strategies and its messages are used as they are. The clients are a ClientApp of a few lines on
torch's modules and torch.optim; of the package they have nothing but the order of their examples.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedYogi
from flwr.serverapp.strategy import FedProx as FlowersFedProx
from problems import TASKS, Small, examples

from fedhv import FedProx, LocalTraining, Problem, Uniform
from fedhv.engines import Sequential
from fedhv.methods.parts.server import ServerOptimiser
from fedhv.problem.random import Purpose
from fedhv.protocol.cohort import Cohort, minibatches
from fedhv.simulation.rounds import Plan, initial_state, simulate
from flower.local_grid import LocalGrid

SIZES = (6, 9, 14, 20, 33)
RATE, MU = 0.2, 0.7
PLAN = Plan(rounds=5, participants=len(SIZES), local=LocalTraining(4, 6, RATE), average="examples", seed=2)


class Plain(Small):
    """Without dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = self.encoder[:2]


def problem() -> Problem:
    clients = [(part.inputs, part.targets) for part in (examples(n, seed=n) for n in SIZES)]
    return Problem.from_clients(Plain, TASKS, clients, clients[0])


def textbook_client() -> ClientApp:
    """Trains as Flower's tutorials do; with `proximal-mu` in the message as its FedProx strategy asks for."""
    app, whole = ClientApp(), problem()

    @app.train()
    def train(message, context):
        config, k = message.content["config"], context.node_config["partition-id"]
        module = Plain()
        module.load_state_dict(message.content["arrays"].to_torch_state_dict())
        start = [p.detach().clone() for p in module.parameters()]
        optimiser = torch.optim.SGD(module.parameters(), lr=RATE)
        cohort = Cohort([k], config["server-round"] - 1, PLAN.seed, PLAN.local)
        mine = whole.train[torch.from_numpy(whole.clients[k])]
        for positions in minibatches(cohort.stream(Purpose.MINIBATCHES, k), SIZES[k], PLAN.local):
            batch = mine[torch.from_numpy(positions)]
            optimiser.zero_grad()
            pairs = zip(module(batch.inputs), batch.targets, strict=True)
            loss = sum(torch.nn.functional.cross_entropy(output, target) for output, target in pairs) / 2
            if mu := config.get("proximal-mu", 0.0):
                pairs = zip(module.parameters(), start, strict=True)
                loss = loss + mu / 2 * sum((p - p0).square().sum() for p, p0 in pairs)
            loss.backward()
            optimiser.step()
        metrics = MetricRecord({"num-examples": SIZES[k]})
        return Message(RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics}), reply_to=message)

    return app


WHOLE = {"fraction_train": 1.0, "fraction_evaluate": 0.0, "min_available_nodes": 5, "min_train_nodes": 5}
CASES = {
    "fedavg": (Uniform(local_lr=RATE), ServerOptimiser(), lambda: FedAvg(**WHOLE)),
    "fedprox": (
        FedProx(mu=MU, local_lr=RATE),
        ServerOptimiser(),
        lambda: FlowersFedProx(**WHOLE, proximal_mu=MU),
    ),
    "fedavgm": (
        Uniform(local_lr=RATE),
        ServerOptimiser("momentum", 0.5, 0.8),
        lambda: FedAvgM(**WHOLE, server_learning_rate=0.5, server_momentum=0.8),
    ),
    "fedadagrad": (
        Uniform(local_lr=RATE),
        ServerOptimiser("adagrad", 0.05, betas=(0.0, 0.99), tau=1e-2),
        lambda: FedAdagrad(**WHOLE, eta=0.05, tau=1e-2),
    ),
    "fedadam": (
        Uniform(local_lr=RATE),
        ServerOptimiser("adam", 0.05, betas=(0.8, 0.95), tau=1e-2, correct_bias=True),
        lambda: FedAdam(**WHOLE, eta=0.05, beta_1=0.8, beta_2=0.95, tau=1e-2),
    ),
    "fedyogi": (
        Uniform(local_lr=RATE),
        ServerOptimiser("yogi", 0.05, tau=1e-2),
        lambda: FedYogi(**WHOLE, eta=0.05, beta_1=0.9, beta_2=0.99, tau=1e-2),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_five_rounds_give_the_parameters_of_flowers_strategy(name):
    method, optimiser, strategy = CASES[name]
    with Sequential(problem()) as engine:
        start = initial_state(engine, method, PLAN.seed).model
        ours = list(simulate(engine, method, replace(PLAN, server=optimiser)))
        first = engine.client.network.state_dict(start)
        network = engine.client.network
    nodes = LocalGrid(textbook_client(), {11 + k: k for k in range(len(SIZES))})
    theirs = []

    def watch(server_round, arrays):
        if server_round:
            theirs.append(arrays.to_torch_state_dict())

    strategy().start(nodes, ArrayRecord(first), num_rounds=5, evaluate_fn=watch)
    assert len(theirs) == 5
    assert (ours[-1].state.model - start).norm() > 0.1
    for round, expected in zip(ours, theirs, strict=True):
        found = network.state_dict(round.state.model)
        for key, value in expected.items():
            torch.testing.assert_close(found[key], torch.as_tensor(value).float(), rtol=1e-5, atol=1e-5)


def test_equal_weights_are_not_flowers_average():
    """Else the comparison could not tell weighted from unweighted means."""
    with Sequential(problem()) as engine:
        plans = (PLAN, replace(PLAN, average="clients"))
        weighted, alike = (list(simulate(engine, Uniform(local_lr=RATE), plan))[-1].state.model for plan in plans)
    assert (weighted - alike).norm() > 1e-2
