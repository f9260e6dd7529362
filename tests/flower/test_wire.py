"""What is on the wire: the same thing on both ends, and exactly m numbers more than federated averaging."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from problems import everything_random

from fedhv import FedHV, Uniform
from fedhv.flower import Patience, Strategy, client_app
from fedhv.flower.hello import HelloReply, decode_hello_reply, hello_reply
from fedhv.flower.records import Malformed
from fedhv.flower.wire import (
    TRAIN,
    decode_cohort,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
    serialised_bytes,
)
from fedhv.problem.labels import Holding
from fedhv.protocol.client import Client
from fedhv.protocol.cohort import LocalTraining, sample_cohort
from fedhv.protocol.exchange import Call
from fedhv.protocol.requests import GramTerms, TaskUpdates, Train
from fedhv.protocol.script import Memory
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
    arrived = decode_request(encode_request(request, COHORT), LAYOUT, Memory())
    assert torch.equal(arrived.model, THETA)
    assert arrived.report == report
    assert (arrived.weights is None) if weights is None else torch.equal(arrived.weights, weights)


def test_task_updates_lose_nothing_but_zeros():
    request = TaskUpdates(THETA)
    reply = CLIENT.answer(Call(request, COHORT), COHORT.clients[0])
    content = encode_reply(request, reply, LAYOUT)
    assert content.array_records["arrays"]["updates"].shape == (request.up(LAYOUT)["task updates"],)
    assert torch.equal(decode_reply(request, content, LAYOUT).updates, reply.updates)


def test_a_request_that_the_node_does_not_know_is_refused():
    content = encode_request(Train(THETA), COHORT)
    content.config_records["config"]["ask"] = "magic"
    with pytest.raises(Malformed, match="the request 'magic' is unknown"):
        decode_request(content, LAYOUT, Memory())


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"local.steps": "many"}, "invalid local training"),
        ({"local.learning_rate": float("nan")}, "learning rate should be positive"),
        ({"ask.weights": [0.5]}, "weights of 1 numbers instead of 2"),
        ({"ask.report": 0}, "`report` should be 'all' or a number of minibatches"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(change, what):
    content = encode_request(Train(THETA, torch.tensor([0.5, 0.5]), "all"), COHORT)
    content["config"] = ConfigRecord({**content["config"], **change})

    def decode():
        decode_cohort(content, 0)
        decode_request(content, LAYOUT, Memory())

    with pytest.raises(Malformed, match=what):
        decode()


def test_a_record_without_configuration_is_refused():
    with pytest.raises(Malformed, match="no configuration"):
        decode_cohort(RecordDict(), 0)


def npy(header: str, body: bytes = bytes(4 * LAYOUT.d)) -> bytes:
    """A file of numpy's with this header."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header.encode("latin1") + b"\n" + body


def header(shape: object = (LAYOUT.d,), descr: object = "<f4") -> str:
    return str({"descr": descr, "fortran_order": False, "shape": shape})


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, model=np.zeros(LAYOUT.d, np.float32))
    return file.getvalue()


NO_ARRAYS = {
    "an archive": npz(),
    "a broken archive": b"PK\x03\x04" + b"x" * 50,
    "nothing": b"",
    "a pickle": b"\x80\x04K\x01.",
    "another version": b"\x93NUMPY\x09\x00",
    "a header without an end": npy("{'shape': ((3,"),
    "a deep header": npy("-" * 3000 + "1"),
    "an indented header": npy("  x\n y"),
    "a header of another kind": npy("{[]: 1}"),
    "objects": npy(header(descr="|O")),
    "whole numbers": npy(header(descr="<i4")),
    "a wrong order of bytes": npy(header(descr=">f4")),
    "a structure": npy(header(descr=[("a", "<f4")])),
    "more than there is": npy(header((10**14,))),
    "more than can be": npy(header((10**30,))),
    "less than nothing": npy(header((-3,))),
    "too few bytes": npy(header(), bytes(4 * LAYOUT.d - 1)),
    "too many bytes": npy(header(), bytes(4 * LAYOUT.d + 4)),
}


@pytest.mark.parametrize("what", NO_ARRAYS)
def test_bytes_that_are_no_array_are_malformed_whatever_they_are(what):
    array = Array(dtype="float32", shape=(LAYOUT.d,), stype="numpy.ndarray", data=NO_ARRAYS[what])
    content = RecordDict({"arrays": ArrayRecord({"model": array})})
    with pytest.raises(Malformed, match="model"):
        decode_reply(Train(THETA), content, LAYOUT)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_array_arrives_in_whichever_order_and_precision_it_was_sent(order, dtype):
    m = LAYOUT.tasks
    sent = np.asarray(np.arange(m * m).reshape(m, m), dtype=dtype, order=order)
    record = ArrayRecord({"known": Array(sent), "residual": Array(sent)})
    arrived = decode_reply(GramTerms(None, None), RecordDict({"arrays": record}), LAYOUT)
    assert arrived.known.dtype == torch.float32
    assert arrived.known.tolist() == sent.tolist()


def test_what_is_said_about_a_record_is_one_short_line():
    content = hello_reply(HelloReply(3, Holding(9)), LAYOUT, ["a"])
    content.config_records["config"]["fedhv"] = "\x1b[2J\n\x9b31m" + "9" * 10_000
    with pytest.raises(Malformed) as refused:
        decode_hello_reply(content, LAYOUT, ["a"])
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 500


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
    down = [m for m in grid.sent if m.metadata.message_type == TRAIN]
    return down, [m for m in grid.received if m.metadata.message_type == TRAIN]


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
            assert set(vars_of(other)) - set(vars_of(one)) <= {"ask.weights", "ask.report", "report"}


def vars_of(message):
    return {name for record in message.content.values() for name in record}


def test_a_nodes_hello_reply_is_its_partition_and_how_many_examples_it_holds():
    assert decode_hello_reply(
        hello_reply(HelloReply(3, Holding(9)), LAYOUT, ["a", "b"]), LAYOUT, ["a", "b"]
    ) == HelloReply(3, Holding(9))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tasks", 5),
        ("tasks", 0.5),
        ("tasks", "ab"),
        ("tasks", ["b", "a"]),
        ("parameters", "many"),
        ("partition", 1.5),
        ("examples", "many"),
    ],
)
def test_a_strangers_hello_reply_is_refused_whatever_it_holds(name, value):
    content = hello_reply(HelloReply(3, Holding(9)), LAYOUT, ["a", "b"])
    next(iter(content.config_records.values()))[name] = value
    with pytest.raises(Malformed):
        decode_hello_reply(content, LAYOUT, ["a", "b"])
