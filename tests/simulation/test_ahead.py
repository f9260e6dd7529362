"""Rounds that begin before the last one is settled: the same runs, with the same errors, on every kind of method."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from problems import everything_random, quadratic

import fedhv.protocol.exchange as exchange
from fedhv import FSMGDA, Diverged, FedCMOO, FedHV, LocalTraining, Problem, Uniform, regression
from fedhv.engines import Sequential
from fedhv.engines.stacked import Stacked
from fedhv.methods import SCAFFOLD
from fedhv.protocol.faults import Faults
from fedhv.protocol.screening import Screening
from fedhv.simulation.rounds import Assess, FinishedRound, Plan, initial_state, rounds, simulate
from fedhv.support.transfers import HostCopies, HostCopy

PLAN = Plan(rounds=5, participants=3, local=LocalTraining(3, 4, 0.1), evaluate_every=2)
METHODS = [Uniform(), FedHV(reference=(3.0, 3.0)), FSMGDA(), FedCMOO(), SCAFFOLD()]


def played(engine, method, plan, ahead):
    engine.ahead = ahead
    return list(simulate(engine, method, plan))


def ended(engine, method, plan, kind):
    """The last recorded round of a run that fails, and its error."""
    done = 0
    try:
        for finished in simulate(engine, method, plan):
            done = finished.number
    except kind as error:
        return done, str(error)
    return pytest.fail("the run did not fail")


def alike(one, other):
    assert torch.equal(one.state.model, other.state.model)
    for each in ("seconds", "warm_up", "shared"):  # clocks
        one, other = replace(one, **{each: 1}), replace(other, **{each: 1})
    assert one.record == other.record


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.label)
@pytest.mark.parametrize("engine", [Stacked, Sequential])
def test_looking_ahead_changes_no_bit_of_a_run(engine, method):
    with engine(everything_random()) as made:
        for one, other in zip(played(made, method, PLAN, False), played(made, method, PLAN, True), strict=True):
            alike(one, other)
            assert one.kept.keys() == other.kept.keys()
            for client, kept in one.kept.items():
                assert all(torch.equal(value, other.kept[client][name]) for name, value in kept.items())


def test_the_next_round_begins_before_the_last_one_is_recorded():
    engine = Sequential(everything_random())
    method = FedHV(reference=(3.0, 3.0))
    run = rounds(
        engine.layout, engine.population, method, PLAN, initial_state(engine, method, 0), sizes=engine.sizes, ahead=True
    )
    order, answer = [], None
    while True:
        try:
            event = run.send(answer)
        except StopIteration:
            break
        answer = None
        match event:
            case FinishedRound():
                order.append(f"end {event.number}")
            case Assess(later=True):
                answer = engine.begin_evaluation(event.model, event.reference)
            case _:
                order.append(f"begin {event.cohort.round + 1}")
                answer = engine.ask(event)
    assert order[:4] == ["begin 1", "begin 2", "end 1", "begin 3"]
    assert order[-2:] == ["end 4", "end 5"]


def spoiled(monkeypatch, client, at):
    """Client `client` sends an update that is not finite in round `at`, counted from 0."""
    plain = exchange.Collector.take_stack

    def take_stack(self, clients, replies):
        if self._call.cohort.round == at and client in clients:
            replies = list(replies)
            j = list(clients).index(client)
            replies[j] = replace(replies[j], update=torch.full_like(replies[j].update, torch.nan))
        return plain(self, clients, replies)

    monkeypatch.setattr(exchange.Collector, "take_stack", take_stack)


@pytest.mark.parametrize("method", [FedHV(reference=(3.0, 3.0)), SCAFFOLD()], ids=lambda method: method.label)
def test_a_round_with_a_reply_that_is_not_finite_is_computed_again_without_it(monkeypatch, method):
    plan = replace(PLAN, participants=5)
    spoiled(monkeypatch, client=2, at=1)
    with Stacked(everything_random()) as engine:
        careful, ahead = played(engine, method, plan, False), played(engine, method, plan, True)
    for one, other in zip(careful, ahead, strict=True):
        alike(one, other)
    assert [refusal.client for refusal in ahead[1].refused] == [2]
    assert not ahead[0].refused
    assert not ahead[2].refused


def test_a_run_that_diverges_ends_with_the_same_error_after_the_same_rounds():
    method = Uniform(local_lr=60.0, server_lr=30.0)
    plan = replace(PLAN, rounds=40, participants=2, local=LocalTraining(3, 2, 60.0), evaluate_every=0)
    plan = replace(plan, screening=replace(plan.screening, max_jump=float("inf")))
    ends = []
    for ahead in (False, True):
        engine = Stacked(quadratic())
        engine.ahead = ahead
        ends.append(ended(engine, method, plan, Diverged))
    assert ends[0] == ends[1]
    assert ends[0][0] > 1


def test_rounds_before_a_failure_are_recorded():
    class Counting(Uniform):
        def round(self, state):
            number = int(state.memory["rounds"]) + 1 if "rounds" in state.memory else 1
            if number == 4:
                raise ZeroDivisionError("a bug in a method")
            after = yield from super().round(state)
            return replace(after, memory={"rounds": after.model.new_tensor([float(number)])})

    engine = Stacked(everything_random())
    engine.ahead = True
    assert ended(engine, Counting(), PLAN, ZeroDivisionError)[0] == 3


JUDGED = {"outliers": {"screening": Screening(outlier=5.0)}, "faults": {"faults": Faults(non_finite=0.2, late=0.2)}}


@pytest.mark.parametrize("judged", JUDGED.values(), ids=JUDGED)
def test_faults_and_comparisons_are_checked_at_once(judged):
    """Where replies are judged by simulated faults or by each other, nothing is trusted."""
    plan = replace(PLAN, participants=5, **judged)
    with Stacked(everything_random()) as engine:
        one, other = (played(engine, Uniform(), plan, ahead) for ahead in (False, True))
    for a, b in zip(one, other, strict=True):
        alike(a, b)
    assert any(each.refused for each in other) or "faults" not in judged


def test_a_copy_is_read_only_while_its_tensor_is_unchanged():
    copies = HostCopies()
    losses = torch.arange(6.0).view(3, 2)
    copies.begin(losses)
    assert copies.read(losses.as_strided((3, 2), (2, 1))).tolist() == losses.tolist()
    losses += 1
    assert copies.read(losses).tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    assert copies.read(losses[:2]).tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_a_copy_has_the_values_at_its_beginning():
    values = torch.ones(2)
    copy = HostCopy(values)
    values += 1
    assert copy.read().tolist() == [1.0, 1.0]


def test_one_client_with_one_example_runs_ahead_too():
    data = (torch.ones(1, 2), [torch.ones(1, 1)])

    class Line(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def forward(self, inputs):
            return [self.layer(inputs)]

    problem = Problem.from_clients(Line, [regression("level", 1.0)], [data], test=data)
    plan = replace(PLAN, participants=1, local=LocalTraining(2, 1, 0.1))
    with Stacked(problem) as engine:
        for one, other in zip(
            played(engine, Uniform(), plan, False), played(engine, Uniform(), plan, True), strict=True
        ):
            alike(one, other)
