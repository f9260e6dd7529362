"""A request of a user's own, with client memory, on every engine and over Flower: the same results everywhere."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from observers import Watch
from problems import TASKS, Noise, Small, examples
from runs_on_disk import contents, save_every_round
from torch import Tensor

import fedhv
from fedhv import SCAFFOLD, FedProx, LocalTraining, Method, Problem, Reply, Request, State, Train, run
from fedhv.engines import Parallel, Sequential, Stacked, choose_engine
from fedhv.protocol.faults import Faults
from fedhv.protocol.fields import tensor
from fedhv.protocol.local import Proximal, Term
from fedhv.protocol.screening import Screening
from fedhv.protocol.script import Computation, Descend, Losses
from fedhv.runs.checkpoint import load_checkpoint
from fedhv.runs.execution import Execution
from fedhv.runs.job import Job
from fedhv.runs.resolve import setting_of
from fedhv.simulation.observer import Observer
from fedhv.simulation.rounds import Plan, simulate
from fedhv.support.errors import Interrupted

LOCAL = LocalTraining(steps=3, batch_size=4, learning_rate=0.1)
PLAN = Plan(rounds=4, participants=3, local=LOCAL)
CHANGES = ["federation.participants=3", "training.rounds=4", "training.batch_size=4", "training.local_steps=3",
           "training.momentum=0.0"]  # fmt: skip
ENGINES = {"sequential": Sequential, "parallel": lambda problem: Parallel(problem, workers=2), "stacked": Stacked}


class Plain(Small):
    """Without dropout, whose draws differ in a stack."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = self.encoder[:2]


def problem() -> Problem:
    parts = [examples(n, seed=n) for n in (5, 9, 14, 20, 33)]
    test = examples(30, seed=2)
    clients = [(part.inputs, part.targets) for part in parts]
    return Problem.from_clients(Plain, TASKS, clients, (test.inputs, test.targets), augment=Noise())


@dataclass(frozen=True)
class VisitReply(Reply):
    """An update, and how often the client was asked."""

    update: Tensor = tensor("d", bound="update")
    losses: Tensor = tensor("m", small=True, combine="each", bound="report")
    visits: Tensor = tensor(computed=True, combine="each")


@dataclass(frozen=True, eq=False)
class Halved(Computation):
    """A computation that no engine knows."""

    value: Tensor

    def alone(self, worker, me):
        return 0.5 * self.value


@dataclass(frozen=True)
class Visit(Request):
    """Trains near the model, less with every visit."""

    reply = VisitReply
    trains = True

    model: Tensor = tensor("d")
    pull: float = 0.5

    def answer(self, me):
        visits = me.memory.run.get("visits", torch.zeros(1)) + 1
        me.memory.run["visits"] = visits
        w = torch.tensor([0.25, 0.75])
        losses, update = yield [
            Losses(self.model, me.report_examples("all")),
            Descend(self.model, w, terms=(Proximal(self.pull, self.model),)),
        ]
        half = yield Halved(update)
        return VisitReply(half / visits.to(half), losses, visits)

    def reply_shapes(self, layout):
        return {"update": (layout.d,), "losses": (layout.tasks,), "visits": (1,)}


@dataclass(frozen=True, kw_only=True)
class Visits(Method):
    """Yields a request; its record says what came back beside the update."""

    name = "visits"
    kind: ClassVar[type[Request]] = Visit

    def round(self, state):
        replies = yield self.kind(state.model)
        record = {
            "visits": replies.stacks["visits"].flatten().tolist(),
            "losses": replies.stacks["losses"].tolist(),
        }
        return State(state.model + replies.means["update"], state.weights, record=record)


def defined_here() -> Visits:
    """A method whose request no other module can import."""

    @dataclass(frozen=True)
    class Hidden(Visit):
        def answer(self, me):
            reply = yield from super().answer(me)
            return VisitReply(-reply.update, reply.losses, reply.visits)

    @dataclass(frozen=True, kw_only=True)
    class Own(Visits):
        kind = Hidden

    return Own()


def over_flower(method, nodes=problem):
    pytest.importorskip("flwr")
    from flower.local_grid import LocalGrid

    from fedhv.flower import Patience, client_app
    from fedhv.flower.engine import over_flower

    there = nodes()
    grid = LocalGrid(client_app(lambda context: there, device="cpu"), {k + 1: k for k in range(5)})
    choice = over_flower(grid, Patience(5, 5, 1))
    return grid, lambda: run(there, method, engine=choice, override=CHANGES)


@pytest.mark.parametrize("method", [Visits(), defined_here()], ids=["in a module", "in a function"])
def test_it_gives_the_same_on_every_engine(method):
    one = list(simulate(Sequential(problem()), method, PLAN))
    assert max(one[-1].state.record["visits"]) > 1, "nobody was asked twice"
    with ENGINES["parallel"](problem()) as engine:
        for a, b in zip(one, simulate(engine, method, PLAN), strict=True):
            assert torch.equal(a.state.model, b.state.model)
            assert (a.state.record, a.traffic) == (b.state.record, b.traffic)
    for a, b in zip(one, simulate(Stacked(problem()), method, PLAN), strict=True):
        torch.testing.assert_close(b.state.model, a.state.model, rtol=1e-5, atol=1e-6)
        assert b.state.record["visits"] == a.state.record["visits"]
        assert b.traffic == a.traffic
    _, play = over_flower(method)
    played = play()
    for name, value in Sequential(problem()).client.network.state_dict(one[-1].state.model).items():
        torch.testing.assert_close(played.state_dict[name], value, rtol=2e-5, atol=2e-6)
    for a, record in zip(one, played.history, strict=True):
        assert record["visits"] == a.state.record["visits"]
        assert torch.tensor(record["losses"]).flatten() == pytest.approx(
            torch.tensor(a.state.record["losses"]).flatten(), rel=1e-5
        )
        assert (record["downlink_bytes"], record["uplink_bytes"]) == (a.traffic.down, a.traffic.up)


def test_a_node_that_does_not_know_the_request_says_what_to_do(monkeypatch):
    from fedhv.protocol.request import REQUESTS

    method = defined_here()
    _, play = over_flower(method)
    monkeypatch.delitem(REQUESTS, method.kind.name)
    with pytest.raises(fedhv.FedHVError, match=r"Hidden' is unknown; import the module that defines it"):
        play()


def test_another_run_over_flower_with_the_same_seed_finds_no_memory():
    grid, play = over_flower(Visits())
    first, again = play(), play()
    assert first.history[0]["visits"] == again.history[0]["visits"] == [1.0, 1.0, 1.0]
    assert [record["visits"] for record in first.history] == [record["visits"] for record in again.history]
    assert len({message.content["config"]["run"] for message in grid.sent if "run" in message.content["config"]}) == 2


# --- every reply ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Every(Method):
    """Looks at every reply."""

    name = "every"

    def round(self, state):
        replies = yield Train(state.model, report="all", each=True)
        mean = torch.stack([one.update for one in replies.each]).mean(dim=0)
        torch.testing.assert_close(mean, replies.mean_update, rtol=1e-5, atol=1e-7)
        record = {
            "who": [(one.client, one.examples) for one in replies.each],
            "sums": [float(one.update.double().sum()) for one in replies.each],
            "reports": [one.report.tolist() for one in replies.each],
        }
        torch.testing.assert_close(torch.tensor(record["reports"]), replies.reports.cpu())
        assert [one.client for one in replies.each] == list(replies.cohort.clients)
        return State(state.model + mean, state.weights, record=record)


def test_every_reply_can_be_had_on_every_engine():
    histories = {
        name: [finished.state.record for finished in simulate(make(problem()), Every(), PLAN)]
        for name, make in ENGINES.items()
    }
    histories["flower"] = over_flower(Every())[1]().history
    sizes = (5, 9, 14, 20, 33)
    for history in histories.values():
        for record, one in zip(history, histories["sequential"], strict=True):
            who = [tuple(pair) for pair in record["who"]]
            assert who == one["who"]
            assert all(examples == sizes[client] for client, examples in who)
            assert record["sums"] == pytest.approx(one["sums"], rel=1e-3, abs=1e-4)
            assert torch.tensor(record["reports"]).flatten().tolist() == pytest.approx(
                torch.tensor(one["reports"]).flatten().tolist(), rel=1e-4
            )


# --- what clients keep ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InPlace(Train):
    """Counts in place, which no engine may miss."""

    def terms(self, me) -> tuple[Term, ...]:
        count = me.memory.run.setdefault("count", torch.zeros(1, dtype=torch.float64))
        count += 1
        return (Proximal(float(count), self.model),)


@dataclass(frozen=True, kw_only=True)
class Counting(Method):
    name = "counting"

    def round(self, state):
        replies = yield InPlace(state.model)
        return State(state.model + replies.mean_update, state.weights)


@pytest.mark.parametrize("name", ENGINES)
def test_what_is_changed_in_place_is_kept_too(name):
    with ENGINES[name](problem()) as engine:
        *_, last = simulate(engine, Counting(), PLAN)
    *_, expected = simulate(Sequential(problem()), Counting(), PLAN)
    assert {k: kept["count"].item() for k, kept in last.kept.items()} == {
        k: kept["count"].item() for k, kept in expected.kept.items()
    }
    torch.testing.assert_close(last.state.model, expected.state.model, rtol=1e-5, atol=1e-6)


def test_a_round_that_is_repeated_leaves_nothing_of_its_first_attempts():
    faulty = Plan(rounds=4, participants=4, local=LOCAL, faults=Faults(drop_out=0.3), screening=Screening(4, 200))
    finished = list(simulate(Sequential(problem()), Visits(), faulty))
    assert any(each.attempts > 1 for each in finished)
    visits: dict[int, float] = {}
    for each in finished:
        for client, kept in each.kept.items():
            visits[client] = visits.get(client, 0) + 1
            assert kept["visits"].item() == visits[client]


METHODS = {"visits": Visits(), "counting": Counting(), "scaffold": SCAFFOLD(server_lr=0.9), "fedprox": FedProx(mu=0.3)}


def play(method, folder, engine, **options):
    return run(problem(), method, seed=3, out=folder, override=CHANGES, engine=engine, **options)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", METHODS)
def test_interrupted_and_resumed_equals_uninterrupted_bit_for_bit(name, engine, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    play(METHODS[name], whole, engine)
    with pytest.raises(Interrupted):
        play(METHODS[name], broken, engine, observer=Watch(2))
    play(METHODS[name], broken, engine, resume=True)
    assert contents(broken) == contents(whole)


def test_an_interruption_in_the_middle_of_a_round_saves_what_was_kept_before_it(tmp_path, monkeypatch):
    save_every_round(monkeypatch)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    play(Visits(), whole, "sequential")
    ask = Sequential.ask

    def pressed(self, call):
        replies = ask(self, call)
        if call.cohort.round == 2:
            signal.raise_signal(signal.SIGINT)
        return replies

    with monkeypatch.context() as patch:
        patch.setattr(Sequential, "ask", pressed)
        with pytest.raises(Interrupted):
            play(Visits(), broken, "sequential")
    play(Visits(), broken, "sequential", resume=True)
    assert contents(broken) == contents(whole)


def test_a_checkpoint_holds_what_clients_keep_and_one_without_it_is_read(tmp_path):
    world = problem()
    for method, kept in ((Visits(), True), (fedhv.Uniform(), False)):
        folder = tmp_path / method.label
        play(method, folder, "sequential")
        job = Job(setting_of(world), world, method, 3, choose_engine("sequential"))
        with Execution(job, Sequential(world), Observer()) as execution:
            checkpoint, _ = load_checkpoint(folder, execution.state)
        assert bool(checkpoint.kept) == kept
        assert all(value["visits"].item() >= 1 for value in checkpoint.kept.values())
