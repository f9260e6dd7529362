"""Every engine gives the same updates, reports and weights: float32 to 1e-5, for all methods."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fedhv import FSMGDA, FedCMOO, FedHV, LocalTraining, Problem, Uniform, classification, multilabel
from fedhv.benchmarks.augment import Rotate
from fedhv.engines import Sequential, Stacked, stacked, stacked_training
from fedhv.protocol.cohort import sample_cohort
from fedhv.protocol.exchange import Call
from fedhv.protocol.requests import Train
from fedhv.simulation.rounds import Plan, initial_state, rounds, simulate, simulate_together

REFERENCE = (1.6, 1.4)
METHODS = (
    FedHV(reference=REFERENCE, server_lr=1.3),
    FedHV(reference=REFERENCE, report=1),
    FedHV(reference=REFERENCE, report=3),
    Uniform(),
    FSMGDA(),
    FedCMOO(server_lr=0.7),
)
LOCAL = (
    LocalTraining(steps=4, batch_size=8, learning_rate=0.1),
    LocalTraining(steps=3, batch_size=8, learning_rate=0.05, momentum=0.9),
    LocalTraining(steps=1, batch_size=16, learning_rate=0.1, sampling="replacement"),
    LocalTraining(epochs=2, batch_size=8, learning_rate=0.1),
)


class Small(nn.Module):
    """A convolution, a pooling and two heads: enough for every kind of layout to go wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(64, 12), nn.ReLU()
        )
        self.heads = nn.ModuleList([nn.Linear(12, 3), nn.Linear(12, 2)])

    def forward(self, inputs: torch.Tensor) -> list[torch.Tensor]:
        shared = self.encoder(inputs)
        return [head(shared) for head in self.heads]


@pytest.fixture(scope="module", params=["plain", "augmented"])
def problem(request) -> Problem:
    rng = np.random.default_rng(7)

    def client(n: int):
        images = rng.standard_normal((n, 1, 8, 8)).astype(np.float32)
        return images, [rng.integers(0, 3, n), rng.integers(0, 2, (n, 2))]

    return Problem.from_clients(
        Small,
        [classification("kind", 3), multilabel("marks", 2)],
        [client(n) for n in (3, 9, 20, 33, 40, 12)],  # some hold less than a minibatch
        client(30),
        augment=Rotate(25) if request.param == "augmented" else None,
    )


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize(
    "local", LOCAL, ids=lambda local: f"K{local.epochs or local.steps}-mu{local.momentum}-{local.sampling}"
)
@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.label}-{getattr(method, 'report', '')}")
def test_a_stack_moves_as_a_loop_does(problem, method, local):
    plan = Plan(rounds=3, participants=4, local=local)
    loop = list(simulate(Sequential(problem), method, plan))
    engine = Stacked(problem)
    stack = list(simulate(engine, method, plan))
    assert engine.obstacle is None, "computed one after the other, as the loop is"
    for one, other in zip(loop, stack, strict=True):
        assert relative(other.state.model, one.state.model) < 1e-5
        assert other.weights == pytest.approx(one.weights, abs=1e-5)
        assert other.traffic == one.traffic
        if "report" in one.state.record:
            assert other.state.record["report"] == pytest.approx(one.state.record["report"], rel=1e-5)
    assert stack[-1].evaluation.mean_loss == pytest.approx(loop[-1].evaluation.mean_loss, rel=1e-5)


def test_runs_played_together_are_the_runs_played_alone(problem):
    """Several methods and seeds in one stack, with different learning rates and numbers of exchanges."""
    methods = [FedHV(reference=REFERENCE), Uniform(local_lr=0.2), FSMGDA(local_lr=0.05), FedCMOO()]
    plans = [
        Plan(rounds=3, participants=4, local=LocalTraining(3, 8, method.local_lr), evaluate_every=2, seed=seed)
        for seed, method in enumerate(methods)
    ]
    engine = Stacked(problem)
    runs = [
        rounds(engine.layout, len(problem.clients), method, plan, initial_state(engine, method, plan.seed))
        for method, plan in zip(methods, plans, strict=True)
    ]
    together: dict[int, list] = {}
    for i, finished in simulate_together(engine, runs):
        together.setdefault(i, []).append(finished)
    for i, (method, plan) in enumerate(zip(methods, plans, strict=True)):
        alone = list(simulate(Sequential(problem), method, plan))
        assert [each.number for each in together[i]] == [each.number for each in alone] == [1, 2, 3]
        assert relative(together[i][-1].state.model, alone[-1].state.model) < 1e-5


def test_a_stack_in_pieces_is_the_whole_stack(problem):
    plan = Plan(rounds=2, participants=5, local=LOCAL[0])
    whole, pieces = Stacked(problem), Stacked(problem)
    pieces.training.most.size = 2
    a, b = (list(simulate(engine, METHODS[0], plan))[-1].state.model for engine in (whole, pieces))
    assert relative(b, a) < 1e-6


def test_pieces_of_a_large_stack_need_one_size_to_be_compiled(problem, monkeypatch):
    """Ten trajectories, three at once: 3 + 2 + 3 + 2, filled up, and not 3 + 3 + 3 + 1."""
    monkeypatch.setattr(stacked_training, "SCALARS", 3 * Stacked(problem).layout.d + 1)
    engine = Stacked(problem)
    compute, sizes = engine.steps.function, []

    def counted(shape, compiled):
        def run(**inputs):
            sizes.append(len(inputs["theta"]))
            return compute(shape, compiled)(**inputs)

        return run

    monkeypatch.setattr(engine.steps, "function", counted)
    engine.training.compiles, engine.steps.compiled = (
        True,
        engine.steps.gradients,
    )  # fill up as if every size were compiled
    plan = Plan(rounds=1, participants=5, local=LOCAL[0])
    (finished,) = simulate(engine, FSMGDA(), plan)
    (expected,) = simulate(Sequential(problem), FSMGDA(), plan)
    assert sizes == [3, 3, 3, 3]
    assert relative(finished.state.model, expected.state.model) < 1e-5


def test_memory_that_runs_short_gives_smaller_pieces_and_a_note(problem, monkeypatch):
    engine = Stacked(problem)
    compute, refused = engine.steps.function, []

    def short_of_memory(shape, compiled):
        run = compute(shape, compiled)

        def limited(**inputs):
            if len(inputs["theta"]) > 2:
                refused.append(len(inputs["theta"]))
                raise torch.cuda.OutOfMemoryError("out of memory")
            return run(**inputs)

        return limited

    monkeypatch.setattr(engine.steps, "function", short_of_memory)
    plan = Plan(rounds=1, participants=6, local=LOCAL[0])
    (finished,) = simulate(engine, METHODS[0], plan)
    (expected,) = simulate(Sequential(problem), METHODS[0], plan)
    assert refused == [6, 3]
    assert len(engine.notes) == 2
    assert "2 at a time" in engine.notes[-1]
    assert relative(finished.state.model, expected.state.model) < 1e-5


@pytest.mark.parametrize("kind", [Sequential, Stacked])
def test_memory_that_is_short_for_reports_and_evaluation_gives_smaller_chunks(kind, problem, monkeypatch):
    engine, expected = kind(problem), kind(problem)
    network = engine.client.network
    seen = []

    def short_of_memory(theta, inputs, *, training, key=None):
        if not training:
            seen.append(len(inputs))
            if len(inputs) > 20:
                try:
                    raise torch.cuda.OutOfMemoryError("out of memory")
                except torch.cuda.OutOfMemoryError as error:  # as a recorder wraps it
                    raise RuntimeError("the capture is invalid") from error
        return network(theta, inputs, training=training, key=key)

    model = initial_state(engine, METHODS[0], 0).model
    monkeypatch.setattr(engine.client, "network", short_of_memory)
    engine.chunk.size = 50
    assert engine.evaluate(model).mean_loss == pytest.approx(expected.evaluate(model).mean_loss)
    assert (engine.chunk.size, max(seen)) == (15, 30)
    (note,) = engine.notes
    assert "15 examples at a time" in note
    if kind is Stacked:
        engine.chunk.size = 50
        cohort = sample_cohort(0, 1, len(problem.clients), 5, LOCAL[0])
        call = Call(Train(model, report="all"), cohort)
        torch.testing.assert_close(engine.ask(call).reports, expected.ask(call).reports)
        assert engine.chunk.size == 13


def test_memory_that_is_short_for_compression_gives_fewer_clients_at_a_time(problem, monkeypatch):
    plan = Plan(rounds=1, participants=5, local=LOCAL[0])
    compress_all, seen = stacked.compress_all, []

    def short_of_memory(matrices, extra_upload, rngs):
        made = compress_all(matrices, extra_upload, rngs)  # draws; the next attempt must draw the same
        seen.append(len(matrices))
        if len(matrices) > 2:
            raise torch.cuda.OutOfMemoryError("out of memory")
        return made

    (expected,) = simulate(Stacked(problem), METHODS[-1], plan)
    monkeypatch.setattr(stacked, "compress_all", short_of_memory)
    engine = Stacked(problem)
    (finished,) = simulate(engine, METHODS[-1], plan)
    assert seen == [5, 3, 2, 2, 1]
    assert "2 clients at a time" in engine.notes[-1]
    assert relative(finished.state.model, expected.state.model) < 1e-6


def test_memory_that_is_short_for_what_is_compressed_gives_fewer_clients_at_a_time_too(problem, monkeypatch):
    plan = Plan(rounds=1, participants=4, local=LOCAL[0])
    (expected,) = simulate(Stacked(problem), METHODS[-1], plan)
    engine = Stacked(problem)
    shared, failures = engine.layout.shared, [True]

    def short_of_memory(vectors):
        if failures:
            failures.pop()
            raise torch.cuda.OutOfMemoryError("out of memory")
        return shared(vectors)

    monkeypatch.setattr(type(engine.layout), "shared", lambda layout, vectors: short_of_memory(vectors))
    (finished,) = simulate(engine, METHODS[-1], plan)
    assert "2 clients at a time" in engine.notes[-1]
    assert relative(finished.state.model, expected.state.model) < 1e-6


def test_dropout_in_a_stack_depends_on_the_seed_alone():
    def factory() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(4, 2))

    rng = np.random.default_rng(0)
    clients = [(rng.standard_normal((6, 4)).astype(np.float32), [rng.integers(0, 2, 6)]) for _ in range(3)]
    problem = Problem.from_clients(factory, [classification("only", 2)], clients, clients[0])
    models = []
    for seed in (0, 0, 1):
        torch.manual_seed(len(models))  # whatever was drawn before must not matter
        plan = Plan(rounds=2, participants=2, local=LocalTraining(2, 4, 0.1), seed=seed)
        start = initial_state(Stacked(problem), Uniform(), 0)
        models.append(list(simulate(Stacked(problem), Uniform(), plan, start))[-1].state.model)
    assert torch.equal(models[0], models[1])
    assert not torch.equal(models[0], models[2])


def test_a_smaller_stack_is_filled_up_to_a_compiled_size(problem):
    plan = Plan(2, 4, LOCAL[0])
    engine, fresh = Stacked(problem), Stacked(problem)
    # What it would compile, it computes as it is: sizes are what this test is about.
    engine.training.compiles, engine.steps.compiled = True, engine.steps.gradients
    (first, *_), (again, *_) = ([*simulate(e, Uniform(), plan)] for e in (engine, fresh))
    torch.testing.assert_close(first.state.model, again.state.model, rtol=0, atol=0)
    fewer = Plan(2, 3, LOCAL[0])
    rounds_of = [[r.state.model for r in simulate(e, Uniform(), fewer)] for e in (engine, fresh)]
    for filled, plain in zip(*rounds_of, strict=True):
        torch.testing.assert_close(filled, plain, rtol=1e-6, atol=1e-7)
    assert list(engine.training.sizes.values()) == [{4}]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_draws_made_ahead_are_the_same_draws(problem, method):
    plan = Plan(3, 3, LOCAL[0])
    ahead, plain = Stacked(problem), Stacked(problem)
    ahead.training.prefetches = True
    for one, other in zip(simulate(ahead, method, plan), simulate(plain, method, plan), strict=True):
        torch.testing.assert_close(one.state.model, other.state.model, rtol=0, atol=0)
        assert one.number in ahead.training.inputs.prefetcher.rounds(), "nothing was drawn ahead"
        assert ahead.training.inputs.prefetcher.rounds() <= {one.number - 1, one.number}, "old draws are kept"
