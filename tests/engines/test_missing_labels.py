"""Missing labels on every engine: the same run, and with complete labels the run without masks, bit for bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gaps import gappy
from problems import everything_random
from torch import nn

from fedhv import FSMGDA, Examples, FedCMOO, FedHV, LocalTraining, Problem, Uniform, regression
from fedhv.engines import ENGINES, Sequential
from fedhv.engines.mappable import why_not_mappable
from fedhv.problem.labels import Holding
from fedhv.simulation.rounds import Plan, simulate

METHODS = {
    "uniform": Uniform(report="all"),
    "fedhv": FedHV(reference=(9.0, 9.0, 9.0)),
    "fedhv, reports of one minibatch": FedHV(reference=(9.0, 9.0, 9.0), report=1, aggregate="median"),
    "fsmgda": FSMGDA(),
    "fedcmoo": FedCMOO(),
}
LOCAL = LocalTraining(3, 8, 0.1, 0.5)
NAMES = ("sequential", "parallel", "stacked")


def played(problem, method, engine, **options):
    plan = Plan(options.pop("rounds", 4), options.pop("participants", 2), LOCAL, **options)
    with ENGINES[engine](problem, "cpu") as running:
        return list(simulate(running, method, plan))


@pytest.mark.parametrize("average", ["clients", "labels"])
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_every_engine_gives_the_same_run(method, average):
    problem = gappy()
    loop, workers, stack = (played(problem, method, name, average=average) for name in NAMES)
    assert any("absent" in each.state.record for each in loop), "every cohort has every task"
    for one, other, third in zip(loop, workers, stack, strict=True):
        assert torch.equal(one.state.model, other.state.model)
        assert torch.equal(one.state.weights, other.state.weights)
        assert one.state.record.get("report") == other.state.record.get("report")
        torch.testing.assert_close(third.state.model, one.state.model, rtol=1e-4, atol=1e-6)
        assert third.weights == pytest.approx(one.weights, abs=1e-4)
        assert one.traffic == other.traffic == third.traffic
        assert one.state.record.get("absent") == other.state.record.get("absent") == third.state.record.get("absent")
        if "report" in one.state.record:
            assert third.state.record["report"] == pytest.approx(one.state.record["report"], rel=1e-4)
        for here, there in zip(one.evaluation.tasks, third.evaluation.tasks, strict=True):
            assert there.loss == pytest.approx(here.loss, rel=1e-4)
            assert there.accuracy == pytest.approx(here.accuracy)
    assert torch.isfinite(loop[-1].state.model).all()


def complete_in_other_words():
    """The same problem whose labels are all there, said with masks and marks that mark nothing."""
    problem = gappy(complete=True)
    masks = [np.ones(len(problem.train), bool), np.ones((len(problem.train), 3), bool), None]
    train = Examples.of(problem.train.inputs, problem.train.targets, labelled=masks)
    tasks = tuple(replace(task, missing=-77.0) for task in problem.tasks)
    return problem, replace(problem, train=train, tasks=tasks)


@pytest.mark.parametrize("engine", NAMES)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_complete_labels_give_the_run_without_masks_bit_for_bit(method, engine):
    runs = [played(problem, method, engine, rounds=2) for problem in complete_in_other_words()]
    for plain, masked in zip(*runs, strict=True):
        assert torch.equal(plain.state.model, masked.state.model)
        assert torch.equal(plain.state.weights, masked.state.weights)
        assert plain.traffic == masked.traffic
        assert plain.evaluation == masked.evaluation
        assert plain.as_dict() | {"seconds": 0} == masked.as_dict() | {"seconds": 0}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_labels_that_may_be_missing_but_are_not_change_only_rounding(method):
    """A server that is prepared for missing labels takes means by shares, which are all alike."""
    problem = gappy(complete=True)
    plain = played(problem, method, "sequential")
    ready = played(replace(problem, missing_labels=True), method, "sequential")
    for one, other in zip(plain, ready, strict=True):
        torch.testing.assert_close(one.state.model, other.state.model, rtol=1e-5, atol=1e-6)
        assert one.weights == pytest.approx(other.weights, abs=1e-5)


def test_unequal_averages_are_the_same_on_every_engine_with_complete_labels():
    problem = everything_random()
    for method in (Uniform(report="all"), FSMGDA()):
        loop, workers, stack = (played(problem, method, e, average="examples", participants=4) for e in NAMES)
        assert torch.equal(loop[-1].state.model, workers[-1].state.model)
        torch.testing.assert_close(stack[-1].state.model, loop[-1].state.model, rtol=1e-4, atol=1e-6)
        plain = played(problem, method, "sequential", participants=4)
        assert not torch.allclose(plain[-1].state.model, loop[-1].state.model, rtol=1e-3)


def test_a_model_with_missing_labels_can_be_mapped():
    assert why_not_mappable(gappy()) is None


# --- evaluation -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", NAMES)
def test_evaluation_uses_the_labelled_test_examples(engine):
    problem = gappy()
    with ENGINES[engine](problem, "cpu") as running:
        running.chunk.size = 7  # several chunks, some without a label
        model = torch.linspace(-1, 1, running.layout.d)
        found = running.evaluate(model)
        outputs = running.client.network(model, problem.test.inputs, training=False)
    for i, (task, score) in enumerate(zip(problem.tasks, found.tasks, strict=True)):
        mask, losses, rights = problem.test.labelled[i], [], []
        for j in range(len(problem.test)):
            there = mask[j]
            if not there.any():
                continue
            output, target = outputs[i][j : j + 1], problem.test.targets[i][j : j + 1]
            if mask.ndim == 1:
                losses.append(float(task.loss(output, target)))
                rights.append(float(task.score(output, target)))
            else:
                losses.append(float(task.entry_loss(output, target)[0][there].mean()))
                rights.append(float(task.entry_score(output, target)[0][there].mean()))
        assert 0 < len(losses) < len(problem.test)
        assert score.loss == pytest.approx(np.mean(losses), rel=1e-5)
        assert score.accuracy == pytest.approx(100 * np.mean(rights), rel=1e-5)


# --- one client of twelve ---------------------------------------------------------------------------------------


class Line(nn.Module):
    """Two outputs that are linear in the input, from one shared layer."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(3, 6)
        self.heads = nn.ModuleList([nn.Linear(6, 1), nn.Linear(6, 1)])

    def forward(self, x):
        return [head(self.shared(x)) for head in self.heads]


def twelve():
    """Everybody has the first task, client 7 alone the second."""
    clients = []
    for k in range(12):
        x = np.random.default_rng(k).standard_normal((20, 3)).astype(np.float32)
        clients.append((x, [x[:, 0], x[:, 1] - x[:, 2] if k == 7 else None]))
    x = np.random.default_rng(99).standard_normal((50, 3)).astype(np.float32)
    tasks = [regression("common", 0.2), regression("rare", 0.2)]
    return Problem.from_clients(Line, tasks, clients, (x, [x[:, 0], x[:, 1] - x[:, 2]]))


@pytest.mark.parametrize("method", [Uniform(report="all"), FedHV(reference=(9.0, 9.0))], ids=lambda m: m.name)
def test_a_task_that_one_of_twelve_clients_has_is_learnt(method):
    engine = ENGINES["stacked"](twelve())
    rounds = list(simulate(engine, method, Plan(60, 12, LocalTraining(5, 10, 0.1))))
    first, last = (rounds[i].evaluation.tasks[1].loss for i in (0, -1))
    assert last < 0.05 * first
    assert rounds[-1].evaluation.tasks[0].loss < 0.05
    own = engine.client.losses(rounds[-2].state.model, np.arange(20), 7)  # reports are from before the round
    assert rounds[-1].state.record["report"][1] == pytest.approx(float(own[1]), rel=1e-6)
    assert engine.client.holding(7) == Holding(20, (20, 20))
    assert engine.client.holding(3) == Holding(20, (20, 0))
    assert engine.labels() == (240, 20)


def test_a_rare_task_is_absent_from_most_rounds_and_keeps_its_report():
    plan = Plan(30, 2, LocalTraining(5, 10, 0.1))
    rounds = list(simulate(Sequential(twelve()), FedHV(reference=(9.0, 9.0)), plan))
    last, absent = None, 0
    for each in rounds:
        record = each.state.record
        if "absent" in record:
            absent += 1
            assert record["absent"] == [1]
            assert last is None or record["report"][1] == last
        if last is not None or "absent" not in record:
            last = record["report"][1]
    assert 15 < absent < 30
