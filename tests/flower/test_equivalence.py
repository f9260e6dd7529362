"""The simulator and Flower give the same model and the same weights, round by round, for all four methods."""

from __future__ import annotations

import re

import pytest
import torch
from problems import everything_random

import fedhv
from fedhv import FSMGDA, FedCMOO, FedHV, LocalTraining, Uniform
from fedhv.engines import Sequential
from fedhv.flower import Patience, Strategy, client_app
from fedhv.flower.server import serve
from fedhv.simulation.rounds import Plan, simulate
from flower.local_grid import LocalGrid

METHODS = {
    "fedhv": FedHV(reference=(3.0, 3.0), report=2, server_lr=1.1),
    "uniform": Uniform(server_lr=0.9),
    "fsmgda": FSMGDA(),
    "fedcmoo": FedCMOO(server_lr=1.2),
}
OVERRIDE = [
    "training.rounds=6",
    "training.batch_size=8",
    "training.local_steps=3",
    "training.momentum=0.5",
    "federation.participants=3",
    "evaluation.every=2",
]
PATIENCE = Patience(reply=2, nodes=2, again=0.05)
FLOAT32 = {"rtol": 2e-5, "atol": 2e-6}
"""Clients return parameters, not differences: every round rounds θ + Δθ once more."""


def grid(problem, nodes=range(5)) -> LocalGrid:
    # Node ids in an order of their own: only the partitions say who is who.
    return LocalGrid(client_app(lambda context: problem, device="cpu"), {900 - 7 * k: k for k in nodes})


def simulated(problem, method, rounds=6, seed=3):
    plan = Plan(rounds, 3, LocalTraining(3, 8, method.local_lr, 0.5), evaluate_every=2, seed=seed)
    with Sequential(problem) as engine:
        return list(simulate(engine, method, plan))


@pytest.mark.parametrize("name", METHODS)
def test_the_strategy_gives_the_simulators_model_and_weights_in_every_round(name):
    problem, method = everything_random(), METHODS[name]
    expected = simulated(problem, method)
    strategy = Strategy(method, problem, override=OVERRIDE, seed=3, patience=PATIENCE)
    seen = []

    def watch(server_round, arrays):
        if server_round:
            seen.append((torch.from_numpy(arrays["model"].numpy()), strategy.execution.state.weights))

    strategy.start(grid(problem), evaluate_fn=watch)
    assert len(seen) == 6
    for round, (model, weights) in zip(expected, seen, strict=True):
        torch.testing.assert_close(model, round.state.model, **FLOAT32)
        torch.testing.assert_close(weights, round.state.weights, **FLOAT32)


@pytest.mark.parametrize("name", METHODS)
def test_the_server_app_records_what_the_simulator_records(name, tmp_path):
    problem, method = everything_random(), METHODS[name]
    result = serve(
        grid(problem), problem, method, seed=3, out=tmp_path / "flower", override=OVERRIDE, patience=PATIENCE
    )
    same = fedhv.run(problem, method, seed=3, out=tmp_path / "simulated", override=OVERRIDE, engine="sequential")
    for there, here in zip(result.history, same.history, strict=True):
        for key in ("round", "downlink_bytes", "uplink_bytes", "exchanges"):
            assert there[key] == here[key]
        assert there["weights"] == pytest.approx(here["weights"], rel=1e-4)
        assert ("evaluation" in there) == ("evaluation" in here)
        # What is really sent is more than the scalars: names, shapes, metadata; but not much more.
        small = 6000 * there["exchanges"]
        assert 0 < there["serialised"]["downlink_bytes"] - there["downlink_bytes"] < small
    assert result.summary.communication == same.summary.communication
    assert result.summary.mean_accuracy == pytest.approx(same.summary.mean_accuracy, abs=4)
    # On Flower every round is checkpointed, so there are some before the last; a simulation may be too quick.
    kept = re.compile(r"checkpoint-\d+\.safetensors")
    files = [
        {path.name for path in (tmp_path / name).iterdir() if not kept.fullmatch(path.name)}
        for name in ("flower", "simulated")
    ]
    assert "checkpoint-previous.safetensors" in files[0]
    assert files[0] == files[1] | {"checkpoint-previous.safetensors"}


def test_a_reference_is_calibrated_on_the_nodes(tmp_path):
    problem = everything_random()
    override = [*OVERRIDE, "calibration.rounds=3"]
    there = serve(grid(problem), problem, "fedhv", out=tmp_path / "flower", override=override, patience=PATIENCE)
    here = fedhv.run(problem, "fedhv", out=tmp_path / "simulated", override=override, engine="sequential")
    assert there.reference.values == pytest.approx(here.reference.values, rel=1e-5)
    assert there.reference.cost.traffic == here.reference.cost.traffic


def test_a_client_that_has_nothing_but_its_own_examples_answers_the_same():
    problem, method = everything_random(), METHODS["fedhv"]

    def load(context):
        own = problem.train[torch.from_numpy(problem.clients[context.node_config["partition-id"]])]
        return fedhv.flower.Node(problem.model, problem.tasks, (own.inputs, own.targets), augment=problem.augment)

    test = (problem.test.inputs, problem.test.targets)
    server = fedhv.flower.Server(problem.model, problem.tasks, test, nodes=5)
    strategy = Strategy(method, server, override=OVERRIDE, seed=3, patience=PATIENCE)
    strategy.start(LocalGrid(client_app(load, device="cpu"), {11 + k: k for k in range(5)}))
    expected = simulated(problem, method)[-1].state
    torch.testing.assert_close(strategy.execution.state.model, expected.model, **FLOAT32)
