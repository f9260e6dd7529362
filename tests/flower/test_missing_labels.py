"""Nodes that lack labels or whole tasks: the simulator's run, what the server learns of them, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity
from gaps import gappy
from problems import everything_random

import fedhv
from fedhv import FSMGDA, FedCMOO, FedHV, InputError, LocalTraining, Uniform
from fedhv.engines import Sequential
from fedhv.flower import Node, Patience, Server, Strategy, client_app
from fedhv.flower.engine import Nodes
from fedhv.flower.hello import HelloReply, decode_hello_reply, hello_reply
from fedhv.flower.records import Malformed
from fedhv.flower.server import serve
from fedhv.problem.labels import Holding
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.exchange import Call
from fedhv.protocol.report_privacy import ReportPrivacy
from fedhv.protocol.requests import Train
from fedhv.simulation.rounds import Plan, initial_state, simulate
from flower.local_grid import LocalGrid

METHODS = {
    "fedhv": FedHV(reference=(9.0, 9.0, 9.0), report=1),
    "uniform": Uniform(report="all"),
    "fsmgda": FSMGDA(),
    "fedcmoo": FedCMOO(),
}
PATIENCE = Patience(reply=2, nodes=2, again=0.05)
OVERRIDE = ["training.rounds=4", "training.batch_size=8", "training.local_steps=3", "federation.participants=2"]
FLOAT32 = {"rtol": 2e-5, "atol": 2e-6}


def own(problem):
    """Every node has nothing but its own examples, NaN where a label is missing, None for a task that it lacks."""

    def load(context):
        part = problem.train[torch.from_numpy(problem.clients[context.node_config["partition-id"]])]
        targets = []
        for target, mask in zip(part.targets, part.labelled, strict=True):
            holes = torch.where(mask, target.float(), torch.nan)
            targets.append(holes if mask.any() else None)
        return Node(problem.model, problem.tasks, (part.inputs, targets))

    return load


def server_of(problem, **options):
    holes = [
        torch.where(m, t.float(), torch.nan) for t, m in zip(problem.test.targets, problem.test.labelled, strict=True)
    ]
    return Server(problem.model, problem.tasks, (problem.test.inputs, holes), nodes=5, **options)


def grid(load, **options):
    return LocalGrid(client_app(load, device="cpu", **options), {900 - 7 * k: k for k in range(5)})


@pytest.mark.parametrize(("average", "select"), [("clients", "uniform"), ("labels", "size")])
@pytest.mark.parametrize("name", METHODS)
def test_nodes_that_lack_tasks_give_the_simulators_run(name, average, select):
    problem, method = gappy(), METHODS[name]
    plan = Plan(4, 2, LocalTraining(3, 8, method.local_lr), seed=0, average=average, select=select)
    expected = list(simulate(Sequential(problem), method, plan))
    override = [*OVERRIDE, f"federation.average={average}", f"federation.select={select}"]
    strategy = Strategy(method, server_of(problem, missing_labels=True), override=override, seed=0, patience=PATIENCE)
    strategy.start(grid(own(problem)))
    records = [each.as_dict() for each in strategy.execution.history.rounds]
    assert len(records) == 4
    for there, here in zip(records, expected, strict=True):
        assert there.get("absent") == here.state.record.get("absent")
        assert there["uplink_bytes"] == here.traffic.up
        if "report" in there:
            assert there["report"] == pytest.approx(here.state.record["report"], rel=1e-4)
    assert select == "size" or any("absent" in record for record in records)
    torch.testing.assert_close(strategy.execution.state.model, expected[-1].state.model, **FLOAT32)
    assert [task.loss for task in expected[-1].evaluation.tasks] == pytest.approx(
        [task["loss"] for task in records[-1]["evaluation"]["tasks"]], rel=1e-4
    )


def test_a_run_over_flower_records_how_many_labels_the_nodes_have(tmp_path):
    problem = gappy()
    result = serve(
        grid(own(problem)),
        server_of(problem, missing_labels=True).problem(),
        Uniform(report="all"),
        out=tmp_path / "run",
        override=OVERRIDE,
        patience=PATIENCE,
    )
    assert result.summary.labels == Sequential(problem).labels()


def test_a_server_that_expects_complete_labels_says_what_to_set():
    engine = Nodes(server_of(gappy()).problem(), grid(own(gappy())), PATIENCE)
    with pytest.raises(fedhv.FedHVError, match=r"labels are missing on the node.*set `missing_labels` in the Server"):
        engine.present()


def test_a_test_example_without_labels_does_not_stand_for_the_nodes():
    problem = gappy()
    first = [each.clone() for each in problem.test.targets]
    masks = [mask.clone() for mask in problem.test.labelled]
    for mask in masks:
        mask[0] = False
    test = replace(problem.test, targets=tuple(first), labelled=tuple(masks))
    made = server_of(replace(problem, test=test)).problem()
    assert made.train.labelled is None
    assert not Sequential(made).layout.partial


def test_no_node_can_measure_where_losses_begin_but_a_number_works():
    override = [*OVERRIDE, "training.scale=initial"]
    with pytest.raises(InputError, match="the same on the server and on the nodes"):
        Strategy(METHODS["uniform"], server_of(gappy(), missing_labels=True), override=override)
    with pytest.raises(InputError, match="which no node has"):
        serve(grid(own(gappy())), server_of(gappy()).problem(), "uniform", override=override)


def test_hidden_labels_are_the_nodes_affair():
    override = [*OVERRIDE, "federation.missing=0.3"]
    with pytest.raises(InputError, match=r"Nodes have their own labels: `federation.missing` has no effect on them\."):
        Strategy(METHODS["uniform"], server_of(gappy(), missing_labels=True), override=override)
    with pytest.raises(InputError, match="Nodes have their own labels"):
        serve(grid(own(gappy())), server_of(gappy()).problem(), METHODS["uniform"], override=override)


# --- what a node says of itself -----------------------------------------------------------------------------------


def test_a_node_with_private_reports_says_only_which_tasks_it_has():
    problem = gappy()
    for reports, expected in (
        (None, [Sequential(problem).client.holding(k) for k in range(5)]),
        (ReportPrivacy(3, 1), [Sequential(problem).client.holding(k).bare() for k in range(5)]),
    ):
        engine = Nodes(server_of(problem, missing_labels=True).problem(), grid(own(problem), reports=reports), PATIENCE)
        engine.present()
        assert [engine.nodes.holdings[k] for k in range(5)] == expected
        assert engine.sizes([0, 3]).tolist() == [5, 20]
        stated = [(each.examples, *each.of(len(problem.tasks))) for each in expected]
        assert engine.client_labels() == stated  # what summary.json gets: no counts of a node that protects them
        assert reports is None or all(set(row[1:]) <= {0, row[0]} for row in stated)


@pytest.mark.parametrize(
    "labels", [[1, 2], [1, 2, -1], [1, 2, 6], [0, 0, 0], [1.5, 2.0, 3.0], "many", [True, True, True], ["a", "b", "c"]]
)
def test_counts_that_cannot_be_are_refused_at_the_hello_reply(labels):
    layout = replace(Sequential(gappy()).layout, partial=True)
    said = hello_reply(HelloReply(0, Holding(5, (1, 2, 3))), layout, ["a", "b", "c"])
    assert decode_hello_reply(said, layout, ["a", "b", "c"]).holding == Holding(5, (1, 2, 3))
    said["config"]["labels"] = labels
    with pytest.raises(Malformed, match=r"labels of .* for 3 tasks and 5 examples"):
        decode_hello_reply(said, layout, ["a", "b", "c"])


def test_a_node_without_examples_is_refused_at_the_hello_reply():
    layout = Sequential(everything_random()).layout
    said = hello_reply(HelloReply(0, Holding(0)), layout, ["a", "b"])
    with pytest.raises(Malformed, match="`examples` of 0"):
        decode_hello_reply(said, layout, ["a", "b"])


# --- against Flower's own average -----------------------------------------------------------------------------------


def test_updates_weighted_by_examples_are_those_of_flowers_fedavg(monkeypatch):
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    problem, local = everything_random(), LocalTraining(3, 8, 0.1)
    engine = Sequential(problem)
    ours = list(simulate(engine, Uniform(), Plan(5, 5, local, average="examples")))
    theta = initial_state(engine, Uniform(), 0).model
    for t in range(5):
        call = Call(Train(theta), Cohort(range(5), t, 0, local))
        replies = []
        for k in range(5):
            after = (theta + engine.client.answer(call, k).update).numpy()
            metrics = MetricRecord({"num-examples": len(problem.clients[k])})
            content = RecordDict({"arrays": ArrayRecord({"model": Array(after)}), "metrics": metrics})
            replies.append(Message(content, 1, "train"))
        found, _ = FedAvg().aggregate_train(t + 1, replies)
        theta = torch.from_numpy(np.asarray(found["model"].numpy(), np.float32))
        torch.testing.assert_close(ours[t].state.model, theta, rtol=1e-5, atol=1e-6)
    plain = list(simulate(engine, Uniform(), Plan(5, 5, local)))
    assert not torch.allclose(plain[-1].state.model, theta, rtol=1e-3, atol=1e-4)
