"""What is on the wire: the same thing on both ends, and exactly m numbers more than federated averaging."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, RecordDict
from problems import everything_random

from fedhv import FedHV, Uniform
from fedhv.client import Client
from fedhv.cohort import LocalTraining, sample_cohort
from fedhv.flower import Patience, Strategy, client_app
from fedhv.flower.wire import (
    TYPES,
    Malformed,
    decode_cohort,
    decode_introduction,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
    introduction,
    serialised_bytes,
)
from fedhv.messages import TaskUpdates, Train
from flower.local_grid import LocalGrid

PROBLEM = everything_random()
CLIENT = Client(PROBLEM)
LAYOUT = CLIENT.layout
THETA = torch.linspace(-1, 1, LAYOUT.d)
COHORT = sample_cohort(7, 4, 5, 2, LocalTraining(3, 4, 0.07, 0.9, "replacement"))


def test_a_client_learns_all_that_fixes_what_it_does():
    there = decode_cohort(encode_request(Train(THETA), COHORT), client=COHORT.clients[1])
    assert (there.round, there.seed, there.local) == (COHORT.round, COHORT.seed, COHORT.local)


@pytest.mark.parametrize("report", [None, "all", 1, 5])
@pytest.mark.parametrize("weights", [None, torch.tensor([0.1, 0.9])])
def test_a_request_to_train_arrives_as_it_was(report, weights):
    request = Train(THETA, weights, report)
    arrived = decode_request("train", encode_request(request, COHORT), LAYOUT, None)
    assert torch.equal(arrived.model, THETA)
    assert arrived.report == report
    assert (arrived.weights is None) if weights is None else torch.equal(arrived.weights, weights)


def test_task_updates_lose_nothing_but_zeros():
    request = TaskUpdates(THETA)
    reply = CLIENT.answer(request, COHORT, COHORT.clients[0])
    content = encode_reply(request, reply, LAYOUT)
    assert content.array_records["arrays"]["updates"].shape == (request.up(LAYOUT)["task updates"],)
    assert torch.equal(decode_reply(request, content, LAYOUT).updates, reply.updates)


def test_a_message_of_an_unknown_type_is_refused():
    with pytest.raises(Malformed, match="unknown type"):
        decode_request("train.magic", encode_request(Train(THETA), COHORT), LAYOUT, None)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"steps": "many"}, "steps"),
        ({"learning-rate": float("nan")}, "learning-rate"),
        ({"weights": [0.5]}, "weights of 1 numbers instead of 2"),
        ({"report": 0}, "report budget"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(change, what):
    content = encode_request(Train(THETA, torch.tensor([0.5, 0.5]), "all"), COHORT)
    content["config"] = ConfigRecord({**content["config"], **change})

    def decode():
        decode_cohort(content, 0)
        decode_request("train", content, LAYOUT, None)

    with pytest.raises(Malformed, match=what):
        decode()


def test_a_record_without_configuration_is_refused():
    with pytest.raises(Malformed, match="no configuration"):
        decode_cohort(RecordDict(), 0)


def floats(message) -> tuple[int, int]:
    """The numbers in a message's arrays, and those beside them."""
    content = message.content
    arrays = sum(int(np.prod(array.shape)) for record in content.array_records.values() for array in record.values())
    beside = [
        v for records in (content.config_records, content.metric_records) for r in records.values() for v in r.values()
    ]
    return arrays, sum(len(v) if isinstance(v, list) else isinstance(v, float) for v in beside)


def played(method):
    grid = LocalGrid(client_app(lambda context: PROBLEM, device="cpu"), {k + 1: k for k in range(5)})
    override = ["training.rounds=1", "federation.participants=4"]
    Strategy(method, PROBLEM, override=override, patience=Patience(2, 2, 1)).start(grid)
    down = [m for m in grid.sent if m.metadata.message_type == TYPES[Train]]
    return down, [m for m in grid.received if m.metadata.message_type == TYPES[Train]]


def test_fedhv_sends_exactly_m_floats_more_in_each_direction_than_federated_averaging():
    averaging, ours = played(Uniform()), played(FedHV(reference=(9.0, 9.0)))
    m = len(PROBLEM.tasks)
    for plain, fedhv in zip(averaging, ours, strict=True):
        assert len(plain) == len(fedhv) == 4
        for one, other in zip(plain, fedhv, strict=True):
            assert floats(one)[0] == floats(other)[0] == LAYOUT.d
            assert floats(other)[1] - floats(one)[1] == m
            # As Flower serialises them: 8 bytes a float, a name, and what holds them together.
            assert 8 * m < serialised_bytes(other) - serialised_bytes(one) < 8 * m + 48
            assert set(vars_of(other)) - set(vars_of(one)) <= {"weights", "report"}


def vars_of(message):
    return {name for record in message.content.values() for name in record}


def test_a_nodes_introduction_is_its_partition():
    assert decode_introduction(introduction(3, LAYOUT, ["a", "b"]), LAYOUT, ["a", "b"]) == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [("tasks", 5), ("tasks", 0.5), ("tasks", "ab"), ("tasks", ["b", "a"]), ("parameters", "many"), ("partition", 1.5)],
)
def test_a_strangers_introduction_is_refused_whatever_it_holds(name, value):
    content = introduction(3, LAYOUT, ["a", "b"])
    next(iter(content.config_records.values()))[name] = value
    with pytest.raises(Malformed):
        decode_introduction(content, LAYOUT, ["a", "b"])
