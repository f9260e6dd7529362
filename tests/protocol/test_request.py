"""A request owns its behaviour: sizes and wire form follow from its fields, and what changes nothing is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from problems import everything_random
from torch import Tensor

from fedhv import InputError, LocalTraining, Method, State, Train
from fedhv.engines import Sequential
from fedhv.methods.fedprox import FedProxTrain
from fedhv.methods.scaffold import ScaffoldTrain
from fedhv.problem.initial import initial_model
from fedhv.protocol.client import Client
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.exchange import Call, collect
from fedhv.protocol.fields import plain_fields, server_side, tensor, tensor_fields, tensors_of
from fedhv.protocol.memories import RoundMemories
from fedhv.protocol.request import REQUESTS, Reply, Request, check_request
from fedhv.protocol.requests import ContinueTraining, Evaluate, GramTerms, TaskGradients, TaskUpdates
from fedhv.protocol.requests.task_gradients import factor_shapes
from fedhv.protocol.script import Memory
from fedhv.simulation.rounds import Plan, simulate
from fedhv.support.errors import FedHVError

PROBLEM = everything_random()
CLIENT = Client(PROBLEM)
LAYOUT = CLIENT.layout
D, M = LAYOUT.d, LAYOUT.tasks
THETA = initial_model(PROBLEM.model, 0)
COHORT = Cohort([1, 3], round=0, seed=4, local=LocalTraining(steps=2, batch_size=4))
FACTORS = {name: torch.ones(shape) for name, shape in factor_shapes(LAYOUT, 1.0).items()}
SHIPPED = {
    "train": Train(THETA),
    "train with everything": Train(THETA, torch.tensor([0.3, 0.7]), "all"),
    "continue_training": ContinueTraining(THETA, torch.tensor([0.3, 0.7])),
    "task_updates": TaskUpdates(THETA),
    "task_gradients": TaskGradients(THETA),
    "gram_terms": GramTerms(**FACTORS),
    "fedprox": FedProxTrain(THETA, mu=0.5),
    "evaluate": Evaluate(THETA),
    "scaffold": ScaffoldTrain(THETA, torch.full((D,), 0.1)),
}


@dataclass(frozen=True)
class OwnReply(Reply):
    """Two tensors, one of which may be missing."""

    both: Tensor = tensor("m", "d")
    few: Tensor | None = tensor("m", default=None, small=True, combine="each", label="a few")


@dataclass(frozen=True)
class Own(Request):
    """Sends two vectors of which clients know one, a number and a text; keeps a mark to itself."""

    reply = OwnReply

    there: Tensor = tensor("d", known=True)
    here: Tensor = tensor("d", label="model")
    maybe: Tensor | None = tensor("m", default=None)
    number: float = 1.0
    mark: str = server_side("here")

    def answer(self, me):
        yield from ()
        return OwnReply(torch.ones(me.layout.tasks, me.layout.d))

    def asks_for(self, name, layout):
        return name != "few" or self.maybe is not None


def answered(request, k=1):
    """A client's reply, with what it would have kept by then."""
    call = Call(request, COHORT)
    kept = {"model": THETA, "gradients": torch.randn(M, D, generator=torch.Generator().manual_seed(0)), **FACTORS}
    call.memories[k] = Memory(round=kept)
    return CLIENT.answer(call, k)


# --- fields -----------------------------------------------------------------------------------------------


def test_sizes_follow_from_the_fields():
    assert Own(THETA, THETA).down(LAYOUT) == {"model": D}  # what clients know is not sent
    assert Own(THETA, THETA, torch.ones(M)).down(LAYOUT) == {"model": D, "maybe": M}
    assert Own(THETA, THETA).up(LAYOUT) == {"both": M * D}
    assert Own(THETA, THETA, torch.ones(M)).up(LAYOUT) == {"both": M * D, "a few": M}


def test_plain_values_travel_unless_they_are_the_servers():
    assert plain_fields(Own) == ("number",)
    assert list(tensor_fields(Own)) == ["there", "here", "maybe"]
    assert list(tensors_of(Own(THETA, THETA))) == ["there", "here"]


@pytest.mark.parametrize(
    ("name", "down", "up"),
    [
        ("train", {"model": D}, {"update": D}),
        ("train with everything", {"model": D, "weights": M}, {"update": D, "report": M}),
        ("continue_training", {"weights": M}, {"update": D}),
        ("fedprox", {"model": D}, {"update": D}),
        ("evaluate", {"model": D}, {"held-out losses": M, "held-out scores": M, "held-out labels": M}),
        ("scaffold", {"model": D, "control variate": D}, {"update": D, "control variate": D}),
    ],
)
def test_the_sizes_of_the_packages_requests(name, down, up):
    assert SHIPPED[name].down(LAYOUT) == down
    assert SHIPPED[name].up(LAYOUT) == up


def test_every_request_of_the_package_is_looked_at_here():
    ours = {name for name, kind in REQUESTS.items() if kind.__module__.startswith("fedhv.")}
    assert ours == {request.name for request in SHIPPED.values()}


# --- on the wire ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_a_reply_survives_the_wire(name):
    request = SHIPPED[name]
    reply = answered(request)
    wire = request.to_wire(reply, LAYOUT)
    assert {key: tuple(value.shape) for key, value in wire.items()} == request.wire_shapes(LAYOUT)
    arrived = request.from_wire(wire, LAYOUT)
    assert type(arrived) is type(reply)
    assert tensors_of(arrived).keys() == tensors_of(reply).keys()
    for key, value in tensors_of(reply).items():
        torch.testing.assert_close(getattr(arrived, key), value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_request_survives_flower(name):
    wire = pytest.importorskip("fedhv.flower.wire")
    request = SHIPPED[name]
    kept = Memory(round={"model": THETA})
    arrived = wire.decode_request(wire.encode_request(request, COHORT), LAYOUT, kept)
    assert type(arrived) is type(request)
    assert {n: getattr(arrived, n) for n in plain_fields(type(request))} == {
        n: getattr(request, n) for n in plain_fields(type(request))
    }
    assert tensors_of(arrived).keys() == tensors_of(request).keys()
    assert all(torch.equal(getattr(arrived, n), value) for n, value in tensors_of(request).items())


# --- what is refused --------------------------------------------------------------------------------------


class Same(Train):
    """Changes nothing."""


@dataclass(frozen=True)
class WithField(Train):
    """A field that nobody reads."""

    extra: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Yields(Method):
    """Yields whatever it was made with."""

    name = "yields"
    kind: object = None

    def round(self, state):
        yield self.kind(state.model) if callable(self.kind) else self.kind
        return State(state.model, state.weights)


def one_line(caught) -> str:
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("found", "called"), [(3, "a int"), ("train", "a str"), (Train, "the class Train")])
def test_what_is_no_request_is_refused_by_name(found, called):
    with pytest.raises(InputError, match=rf"^Method 'mine' should yield requests.*Found {called};") as caught:
        check_request(found, "mine")
    one_line(caught)


@pytest.mark.parametrize("kind", [Same, WithField], ids=lambda kind: kind.__name__)
def test_a_subclass_that_changes_nothing_is_refused_by_name(kind):
    plan = Plan(rounds=1, participants=2, local=COHORT.local)
    with pytest.raises(InputError, match=rf"'yields'.*'{kind.__name__}' changes nothing of 'Train'") as caught:
        list(simulate(Sequential(PROBLEM), Yields(kind=kind), plan))
    one_line(caught)


def test_a_method_that_yields_something_else_stops_in_its_first_round():
    plan = Plan(rounds=1, participants=2, local=COHORT.local)
    with pytest.raises(InputError, match=r"^Method 'yields' should yield requests, .* Found a dict"):
        list(simulate(Sequential(PROBLEM), Yields(kind={"train": 1}), plan))


@pytest.mark.parametrize("name", ["continue_training", "gram_terms"])
def test_a_client_without_task_gradients_says_so(name):
    with pytest.raises(FedHVError, match="Client 1 does not have the task gradients of round 1") as caught:
        CLIENT.answer(Call(SHIPPED[name], COHORT), 1)
    one_line(caught)


@pytest.mark.parametrize("report", [0, -1, True, 1.5, "some"])
def test_a_report_of_no_size_is_refused(report):
    with pytest.raises(InputError, match="`report` should be 'all' or a number of minibatches"):
        Train(THETA, report=report)


# --- what the server gets ---------------------------------------------------------------------------------


def test_every_reply_is_kept_only_where_it_is_asked_for():
    replies = [answered(Train(THETA), k) for k in COHORT.clients]
    call = Call(Train(THETA), COHORT)
    assert collect(call, LAYOUT, replies, CLIENT.holding).each == ()
    each = collect(replace(call, request=Train(THETA, each=True)), LAYOUT, replies, CLIENT.holding).each
    assert [(one.client, one.examples) for one in each] == [(1, 9), (3, 20)]
    assert all(torch.equal(one.update, reply.update) for one, reply in zip(each, replies, strict=True))
    assert all(one.update is not reply.update for one, reply in zip(each, replies, strict=True))


def test_a_request_that_asks_for_less_gets_no_mean_of_what_is_missing():
    replies = collect(Call(Own(THETA, THETA), COHORT), LAYOUT, [answered(Own(THETA, THETA))] * 2, CLIENT.holding)
    assert list(replies.means) == ["both"]
    assert replies.stacks == {"few": None}


# --- what clients keep ------------------------------------------------------------------------------------


def test_what_a_client_keeps_in_a_round_is_a_copy_of_what_it_kept_before():
    before = {1: {"c": torch.ones(3)}}
    memories = RoundMemories(before)
    memories[1].run["c"] += 1  # in place
    memories[2].run["c"] = torch.zeros(3)
    memories[3].round["c"] = torch.zeros(3)
    assert before[1]["c"].tolist() == [1, 1, 1]
    assert {k: kept["c"].tolist() for k, kept in memories.kept().items()} == {1: [2, 2, 2], 2: [0, 0, 0]}


def test_one_clients_row_does_not_keep_a_stack_in_memory():
    memories = RoundMemories({})
    memories[0].run["c"] = torch.zeros(100, 3)[5]
    assert memories.kept()[0]["c"].untyped_storage().nbytes() == 12


def test_only_tensors_are_kept_until_the_run_ends():
    memories = RoundMemories({})
    memories[7].run["visits"] = 3
    with pytest.raises(InputError, match=r"should hold tensors\. Found a int in 'visits' of client 7"):
        memories.kept()
