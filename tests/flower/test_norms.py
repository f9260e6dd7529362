"""Models with BatchNorm between nodes: the simulator's numbers, and no more on the wire than what is counted."""

from __future__ import annotations

import pytest
import torch
from problems import TASKS, Normalised, examples

import fedhv
from fedhv import FSMGDA, FedCMOO, FedHV, FedProx, LocalTraining, Problem
from fedhv.engines import Sequential
from fedhv.flower import Patience, Strategy, client_app
from fedhv.flower.server import serve
from fedhv.problem.holdout import with_validation
from fedhv.simulation.rounds import Plan, simulate
from flower.local_grid import LocalGrid

SIZES = (5, 9, 14, 20)
METHODS = {
    "fedhv": FedHV(reference=(6.0, 6.0), report=2, server_lr=1.1),
    "fsmgda": FSMGDA(),
    "fedcmoo": FedCMOO(),
    "fedprox": FedProx(mu=0.5),
}
OVERRIDE = [
    "training.rounds=3",
    "training.batch_size=6",
    "training.local_steps=3",
    "training.momentum=0.5",
    "federation.participants=3",
]
PATIENCE = Patience(reply=2, nodes=2, again=0.05)
CLOSE = {"rtol": 2e-4, "atol": 2e-5}


def parts():
    return [(part.inputs, part.targets) for part in (examples(n, seed=n) for n in SIZES)]


def problem(norm: str) -> Problem:
    return Problem.from_clients(Normalised, TASKS, parts(), parts()[0], norm=norm)


def grid(load) -> LocalGrid:
    return LocalGrid(client_app(load, device="cpu"), {900 - 7 * k: k for k in range(len(SIZES))})


@pytest.mark.parametrize("norm", ["frozen", "local", "average", "group"])
@pytest.mark.parametrize("name", METHODS)
def test_nodes_give_the_simulators_model_in_every_round(name, norm):
    whole, method = problem(norm), METHODS[name]
    plan = Plan(3, 3, LocalTraining(3, 6, method.local_lr, 0.5), seed=3)
    with Sequential(whole) as engine:
        expected = list(simulate(engine, method, plan))
    strategy = Strategy(method, whole, override=OVERRIDE, seed=3, patience=PATIENCE)
    seen = []

    def watch(server_round, arrays):
        if server_round:
            seen.append(torch.from_numpy(arrays["model"].numpy()))

    strategy.start(grid(lambda context: whole), evaluate_fn=watch)
    assert len(seen) == 3
    for round, model in zip(expected, seen, strict=True):
        torch.testing.assert_close(model, round.state.model, **CLOSE)


@pytest.mark.parametrize("norm", ["local", "average"])
def test_what_is_sent_is_what_is_counted(norm, tmp_path):
    whole = problem(norm)
    nodes = grid(lambda context: whole)
    result = serve(nodes, whole, METHODS["fedprox"], out=tmp_path, override=OVERRIDE, patience=PATIENCE)
    d = sum(p.numel() for p in Normalised().parameters()) + (16 if norm == "average" else -16)
    for message in [*nodes.sent, *nodes.received]:
        for record in message.content.array_records.values():
            assert [tuple(array.shape) for array in record.values()] == [(d,)]
    assert all(record["downlink_bytes"] == 4 * 3 * d == record["uplink_bytes"] for record in result.history)


def test_nodes_that_hold_their_own_examples_alone_keep_their_own_layers():
    method = METHODS["fedhv"]

    def load(context):
        return fedhv.flower.Node(Normalised, TASKS, parts()[context.node_config["partition-id"]], norm="local")

    server = fedhv.flower.Server(Normalised, TASKS, parts()[0], nodes=len(SIZES), norm="local")
    strategy = Strategy(method, server, override=OVERRIDE, seed=3, patience=PATIENCE)
    nodes = grid(load)
    strategy.start(nodes)
    plan = Plan(3, 3, LocalTraining(3, 6, method.local_lr, 0.5), seed=3)
    with Sequential(problem("local")) as engine:
        expected = list(simulate(engine, method, plan))
    torch.testing.assert_close(strategy.execution.state.model, expected[-1].state.model, **CLOSE)
    kept = {k: each["norm.0"] for round in expected for k, each in round.kept.items()}
    for context in nodes.nodes.values():
        mine = context.state.array_records["fedhv-kept-run"]["norm.0"].numpy()
        torch.testing.assert_close(torch.from_numpy(mine), kept[context.node_config["partition-id"]], **CLOSE)


@pytest.mark.parametrize("norm", ["frozen", "local", "average", "group"])
def test_nodes_evaluate_with_their_policy_as_the_simulators_clients_do(norm):
    """Under "local" every node evaluates with its own layers, which the server never has."""
    whole = with_validation(problem(norm), 0.25, seed=1)
    override = [*OVERRIDE, "evaluation.every=2"]
    there = serve(grid(lambda context: whole), whole, METHODS["fedhv"], seed=3, override=override, patience=PATIENCE)
    here = fedhv.run(whole, METHODS["fedhv"], seed=3, override=override, engine="sequential")
    found = [record["validation"] for record in there.history if "validation" in record]
    expected = [record["validation"] for record in here.history if "validation" in record]
    assert len(found) == len(expected) == 2
    for a, b in zip(found, expected, strict=True):
        assert a["clients"]["client"] == b["clients"]["client"] == [0, 1, 2, 3]
        assert a["clients"]["labels"] == b["clients"]["labels"]
        torch.testing.assert_close(torch.tensor(a["clients"]["loss"]), torch.tensor(b["clients"]["loss"]), **CLOSE)


def test_a_node_with_another_policy_is_refused_in_one_line():
    strategy = Strategy(METHODS["fedprox"], problem("average"), override=OVERRIDE, patience=PATIENCE)
    with pytest.raises(fedhv.FedHVError) as caught:
        strategy.start(grid(lambda context: problem("local")))
    assert "policies for BatchNorm differ: norm = 'average' here, 'local' on the node" in str(caught.value)
