"""Recordings: what is warmed up before them, and what becomes of functions that cannot be recorded."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from problems import everything_random
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from fedhv import (
    ContinueTraining,
    FedCMOO,
    FedHV,
    LocalTraining,
    Method,
    Problem,
    State,
    TaskGradients,
    Train,
    Uniform,
    classification,
)
from fedhv.engines import Stacked
from fedhv.engines.graphs import MOST_SHAPES, Recorder, _no_collection, _Recording
from fedhv.protocol.local import Schedule
from fedhv.simulation.rounds import Plan, simulate
from fedhv.support.transfers import HostCopies


class Recording(Recorder):
    """A recorder that behaves on a CPU as on a GPU; a replay calls the function with the recording's inputs."""

    records = True

    def __init__(self, *arguments) -> None:
        super().__init__(torch.device("cpu"), *arguments)
        self.warmed, self.made = [], 0

    def _record(self, function, inputs, brief):
        with self._watching():
            self.warmed.append(brief(**inputs))
        self.made += 1
        static = {name: value.clone() for name, value in inputs.items()}
        output = function(**static)
        graph = SimpleNamespace(replay=lambda: output.copy_(function(**static)))
        return _Recording(graph, static, output)


def test_a_recorded_run_is_the_run_without_recordings():
    problem, plan = everything_random(), Plan(4, 3, LocalTraining(4, 4, 0.1), evaluate_every=2)
    method = FedHV(reference=(9.0, 9.0, 9.0)[: len(problem.tasks)])
    plain, recorded = Stacked(problem), Stacked(problem)
    recorded.training.recorder = Recording()
    recorded.training.prefetches = True
    for one, other in zip(simulate(plain, method, plan), simulate(recorded, method, plan), strict=True):
        assert torch.equal(one.state.model, other.state.model)
        assert one.evaluation == other.evaluation
    assert recorded.training.recorder.made == 2, "the steps, and the evaluation"


def test_two_steps_are_enough_to_warm_up():
    problem, steps = everything_random(), []
    engine = Stacked(problem)
    engine.training.recorder = Recording()
    whole = engine.steps.function

    def counted(shape, compiled):
        steps.append(shape.minibatches)
        return whole(shape, compiled)

    engine.steps.function = counted
    list(simulate(engine, Uniform(), Plan(1, 3, LocalTraining(5, 4, 0.1))))
    assert sorted(steps) == [2, 5]


def test_what_cannot_be_recorded_is_called():
    class Refusing(Recording):
        def _record(self, function, inputs, brief):
            raise RuntimeError("operation not permitted when stream is capturing")

    recorder = Refusing()
    for number in (1.0, 2.0):
        found = recorder.carefully("key", lambda x: 2 * x, {"x": torch.tensor([number])})
        assert found.tolist() == [2 * number]


def test_an_error_that_is_no_fault_of_the_recording_is_raised():
    def fail(x):
        raise MemoryError

    with pytest.raises(MemoryError):
        Recording().carefully("key", fail, {"x": torch.ones(1)})


def test_few_shapes_are_recorded():
    recorder = Recording()
    for size in range(1, MOST_SHAPES + 4):
        assert recorder.carefully("key", lambda x: x + 1, {"x": torch.zeros(size)}).tolist() == [1.0] * size
    assert recorder.made == MOST_SHAPES


@dataclass(frozen=True, kw_only=True)
class TwoShapes(Method):
    """A round with two stacks of the same clients and parts: K steps, and K − 1 after a gradient that is known."""

    name = "two-shapes"

    def round(self, state):
        yield TaskGradients(state.model)
        first = yield Train(state.model)
        second = yield ContinueTraining(state.model)
        return State(state.model + 0.5 * (first.mean_update + second.mean_update), state.weights)


@pytest.mark.parametrize("schedule", [Schedule(), Schedule("cosine")])
@pytest.mark.parametrize(("method", "stacks"), [(Uniform(), 1), (FedCMOO(), 2), (TwoShapes(), 3)])
def test_draws_for_the_next_round_are_used_if_the_stack_is_the_expected_one(schedule, method, stacks):
    plan = Plan(3, 3, LocalTraining(2, 4, 0.1), schedule=schedule, evaluate_every=0)
    engine, plain = Stacked(everything_random()), Stacked(everything_random())
    engine.training.prefetches = True
    drawn, made = engine.training.inputs.drawn, []

    def counted(places, shape):
        made.append(places[0].cohort.round)
        return drawn(places, shape)

    engine.training.inputs.drawn = counted
    for one, other in zip(simulate(engine, method, plan), simulate(plain, method, plan), strict=True):
        assert torch.equal(one.state.model, other.state.model)
    assert sorted(made) == sorted([0, 1, 2, 3] * stacks), "every round once, a round ahead"


def test_reports_as_a_gpu_computes_them_are_the_reports_of_the_host():
    problem = everything_random()
    engine = Stacked(problem)
    theta = torch.randn(engine.layout.d)
    clients = [0, 3, 1]
    chosen = [problem.clients[k][:7] for k in clients]
    found = engine._reports.recorded(theta, chosen, engine.training.recorder)
    for k, examples, losses in zip(clients, chosen, found, strict=True):
        torch.testing.assert_close(
            losses, engine.client.losses(theta, np.arange(len(examples)), k), rtol=1e-5, atol=1e-6
        )


def test_reports_are_read_from_the_copy_that_was_begun_before_training(monkeypatch):
    """A copy that begins after local training would wait for it, and the GPU would then wait for the host."""
    problem = everything_random()
    engine = Stacked(problem)
    engine._reports.at = engine._reports.recorded  # as on a GPU
    engine.ahead = True
    copied = []
    monkeypatch.setattr(HostCopies, "read", lambda self, tensor: copied.append(_begun(self, tensor)) or tensor.cpu())
    list(simulate(engine, FedHV(reference=(9.0, 9.0)), Plan(2, 3, LocalTraining(2, 4, 0.1))))
    assert copied == [True, True]


def _begun(copies, tensor):
    (original, _, _) = copies._begun.get(tensor.data_ptr(), (None, None, None))
    return original is not None and original.shape == tensor.shape and original.stride() == tensor.stride()


def test_nothing_is_collected_during_a_recording():
    """The collection of an earlier recording would end the new one with an error, and the run would be slow."""
    assert gc.isenabled()
    with _no_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(RuntimeError), _no_collection():
        raise RuntimeError("capture failed")
    assert gc.isenabled()


class Reading(TorchDispatchMode):
    """Notes operations whose result has a shape or value that the host must read, which no recording can contain."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.__name__.split(".")[0]
        if name in ("nonzero", "_local_scalar_dense", "masked_select", "unique", "_unique2"):
            self.found.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("norm", ["average", "local", "group", "frozen"])
def test_steps_with_batchnorm_can_be_recorded(norm):
    rng = np.random.default_rng(0)
    clients = [(rng.standard_normal((n, 4)).astype(np.float32), [rng.integers(0, 3, n)]) for n in (6, 9)]

    def model():
        return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))

    problem = Problem.from_clients(model, [classification("only", 3)], clients, clients[0], norm=norm)
    engine, reading = Stacked(problem), Reading()
    whole = engine.steps.function

    def watched(shape, compiled):
        def run(**inputs):
            with reading:
                return whole(shape, compiled)(**inputs)

        return run

    engine.steps.function = watched
    list(simulate(engine, Uniform(), Plan(1, 2, LocalTraining(2, 6, 0.1))))
    assert engine.obstacle is None
    assert reading.found == []


def full_for(seconds=0.0):
    time.sleep(seconds)
    raise torch.cuda.OutOfMemoryError("CUDA out of memory.")


def test_draws_for_the_next_round_are_left_out_where_memory_is_short(monkeypatch):
    problem, plan = everything_random(), Plan(4, 5, LocalTraining(2, 4, 0.05), evaluate_every=0)
    plain, short = Stacked(problem), Stacked(problem)
    for engine in (plain, short):
        engine.training.recorder = Recording()
        engine.training.prefetches = True
    inputs, round_now, failed = short.training.inputs, [0], []
    drawn = inputs.drawn

    def once(places, shape):
        if places[0].cohort.round > round_now[0]:  # for the next round
            failed.append(places[0].cohort.round)
            full_for()
        return drawn(places, shape)

    monkeypatch.setattr(inputs, "drawn", once)
    for one, other in zip(simulate(plain, Uniform(), plan), simulate(short, Uniform(), plan), strict=True):
        round_now[0] = other.number
        assert torch.equal(one.state.model, other.state.model)
    assert failed
    assert short.notes == []


def test_an_evaluation_takes_the_memory_of_recordings_before_it_is_halved_to_nothing(monkeypatch):
    engine = Stacked(everything_random())
    recorder = engine.training.recorder = Recording()
    assessed = engine.client.assessed

    def beside_recordings(theta, batch):
        if any(
            name == "theta" and value.ndim == 2
            for r in recorder._recordings.values()
            for name, value in r.inputs.items()
        ):
            full_for()
        return assessed(theta, batch)

    monkeypatch.setattr(engine.client, "assessed", beside_recordings)
    plan = Plan(3, 5, LocalTraining(2, 4, 0.05), evaluate_every=1)
    assert [played.evaluation is not None for played in simulate(engine, Uniform(), plan)] == [True] * 3


def test_reports_of_many_sizes_are_recorded_for_a_few_of_them():
    engine, recorder = Stacked(everything_random()), Recording()
    theta = torch.randn(engine.layout.d)
    engine.chunk.size = 16 * 512  # as on a GPU
    for k in range(1, 33):
        engine._reports.recorded(theta, [np.zeros(256 * k - 5, np.int64)], recorder)
    assert recorder.made == MOST_SHAPES


def test_the_time_of_a_recording_that_fails_is_not_the_rounds():
    recorder = Recording()
    with pytest.raises(torch.cuda.OutOfMemoryError):
        recorder("a", lambda theta: full_for(0.01), {"theta": torch.zeros(3)})
    assert recorder.seconds >= 0.01
