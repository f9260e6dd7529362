"""Server optimisers and weighted averages give the parameters of Flower's own strategies."""

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvgM, FedYogi
from flwr.supercore.task_identity import TaskIdentity

from fedhv import InputError, State
from fedhv.methods.parts.server import ServerOptimiser

START = torch.linspace(-1, 1, 7)


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    """Flower's messages belong to a run."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def mean_updates(rounds):
    generator = torch.Generator().manual_seed(0)
    return [0.1 * torch.randn(7, generator=generator) for _ in range(rounds)]


def by_flower(strategy, updates):
    """The models that a Flower strategy comes to when two clients' mean update is given."""
    model = START.numpy()
    for number, update in enumerate(updates, start=1):
        strategy.current_arrays = _current(strategy, model)
        replies = []
        for sign in (1, -1):
            arrays = ArrayRecord({"model": Array(model + update.numpy() + sign * np.float32(0.01))})
            content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 5})})
            replies.append(Message(content, 1, "train"))
        found, _ = strategy.aggregate_train(number, replies)
        model = found["model"].numpy()
    return torch.from_numpy(np.asarray(model, np.float32))


def _current(strategy, model):
    """As the strategies keep it: FedAvgM as a record, the others as arrays by name."""
    return ArrayRecord({"model": Array(model)}) if isinstance(strategy, FedAvgM) else {"model": model}


def by_ours(optimiser, updates):
    state = State(START, torch.ones(1))
    for update in updates:
        state = optimiser.applied(state, State(state.model + update, state.weights))
    return state.model


@pytest.mark.parametrize(
    ("optimiser", "strategy"),
    [
        (ServerOptimiser("momentum", 0.5, 0.8), lambda: FedAvgM(server_learning_rate=0.5, server_momentum=0.8)),
        (ServerOptimiser("adagrad", 0.05), lambda: FedAdagrad(eta=0.05, tau=1e-3)),
        (
            ServerOptimiser("adam", 0.05, betas=(0.8, 0.95), tau=1e-2, correct_bias=True),
            lambda: FedAdam(eta=0.05, beta_1=0.8, beta_2=0.95, tau=1e-2),
        ),
        (ServerOptimiser("yogi", 0.05, tau=1e-2), lambda: FedYogi(eta=0.05, beta_1=0.9, beta_2=0.99, tau=1e-2)),
    ],
)
def test_five_rounds_are_those_of_flowers_strategy(optimiser, strategy):
    updates = mean_updates(5)
    if optimiser.kind == "adagrad":  # Flower's has no momentum in its default: β₁ = 0
        optimiser = ServerOptimiser("adagrad", 0.05, betas=(0.0, 0.99))
    torch.testing.assert_close(by_ours(optimiser, updates), by_flower(strategy(), updates), rtol=1e-5, atol=1e-6)


def test_adam_with_both_biases_corrected_is_torchs():
    theta = torch.nn.Parameter(START.clone())
    torchs = torch.optim.Adam([theta], lr=0.05, betas=(0.8, 0.95), eps=1e-2)
    updates = mean_updates(5)
    for update in updates:
        theta.grad = -update
        torchs.step()
    ours = ServerOptimiser("adam", 0.05, betas=(0.8, 0.95), tau=1e-2, correct_bias="both")
    torch.testing.assert_close(by_ours(ours, updates), theta.detach(), rtol=1e-6, atol=1e-7)


def test_none_takes_the_step_as_it_is_and_one_round_of_adam_by_hand():
    before, after = State(START, torch.ones(1)), State(START + 1, torch.ones(1))
    assert ServerOptimiser().applied(before, after) is after
    # m = 0.1, v = 0.01: 1 + 0.5 · 0.1/(0.1 + 0.1)
    moved = ServerOptimiser("adam", 0.5, tau=0.1).applied(before, after)
    torch.testing.assert_close(moved.model, START + 0.25)


def test_what_the_optimiser_remembers_survives_a_method_that_makes_its_memory_anew():
    optimiser = ServerOptimiser("momentum", 1.0, 0.5)
    one = optimiser.applied(State(START, torch.ones(1)), State(START + 1, torch.ones(1)))
    two = optimiser.applied(one, State(one.model + 1, torch.ones(1), memory={"own": torch.zeros(1)}))
    torch.testing.assert_close(two.model, START + 1 + 1.5)
    assert {"own", "server.m"} <= set(two.memory)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "adm"},
        {"correct_bias": "one"},
        {"learning_rate": 0.0},
        {"tau": -1.0},
        {"momentum": 1.0},
        {"betas": (1.0, 0.9)},
    ],
)
def test_server_optimisers_that_mean_nothing_are_refused(wrong):
    with pytest.raises(InputError, match="server"):
        ServerOptimiser(**wrong)
