"""A stack that fails, wherever it does, is computed in a simpler way: rounds complete, with a reason in one line."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from zoo import TINY, ZOO

from fedhv import FSMGDA, FedCMOO, FedHV, LocalTraining, Problem, Uniform, classification, run
from fedhv.engines import Sequential, Stacked, choose_engine, compiled
from fedhv.engines.kernels.fusion import with_stacked_kernels
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.exchange import Call
from fedhv.protocol.requests import Evaluate
from fedhv.simulation.rounds import Plan, initial_state, simulate
from fedhv.support.errors import InputError

PLAN = Plan(rounds=2, participants=3, local=LocalTraining(steps=2, batch_size=4, learning_rate=0.1))


class FailsBackward(torch.autograd.Function):
    """Its forward pass can be mapped, its backward pass not."""

    generate_vmap_rule = False

    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        if g.dim() > 2:
            raise RuntimeError("No stacks here. Nor anywhere else.")
        return 2 * g

    @staticmethod
    def vmap(info, in_dims, x):
        return FailsBackward.apply(x), in_dims[0]


class Backward(nn.Module):
    """Fails in the backward pass of a stack."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, inputs):
        return [FailsBackward.apply(self.layer(inputs))]


class Forward(Backward):
    """Looks at the data to decide what to do."""

    def forward(self, inputs):
        return [self.layer(inputs if inputs.sum() > 0 else -inputs)]


class Packing(nn.Module):
    """Packs sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.GRU(1, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, inputs):
        packed = pack_padded_sequence(inputs[..., None], torch.full((len(inputs),), 3), batch_first=True)
        return [self.head(self.layer(packed)[1][0])]


MODELS = (Backward, Forward, Packing)


def problem_with(model) -> Problem:
    rng = np.random.default_rng(3)
    clients = [(rng.standard_normal((6, 4)).astype(np.float32), [rng.integers(0, 3, 6)]) for _ in range(4)]
    return Problem.from_clients(model, [classification("only", 3)], clients, clients[0])


@pytest.mark.parametrize("method", [Uniform(), FSMGDA(), FedCMOO(), FedHV(reference=(2.0,))], ids=lambda m: m.label)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_what_fails_in_a_stack_is_computed_one_client_after_the_other(model, method, precision):
    problem = problem_with(model)
    stack = Stacked(problem, precision=precision)
    loop = Sequential(problem, precision=precision)
    for one, other in zip(simulate(loop, method, PLAN), simulate(stack, method, PLAN), strict=True):
        torch.testing.assert_close(other.state.model, one.state.model, rtol=1e-5, atol=1e-6)
        assert stack.measured(one.number) == {"engine": "sequential"}
    (note,) = stack.notes
    assert note == f"Clients are computed one after the other. The model cannot be stacked: {stack.obstacle}."
    assert "\n" not in note


def test_the_reasons_are_short():
    reasons = []
    for model in MODELS:
        stack = Stacked(problem_with(model))
        list(simulate(stack, Uniform(), PLAN))
        reasons.append(stack.obstacle)
    assert reasons == [
        "No stacks here",
        "a branch of the model depends on the data",
        "it packs sequences, and the shape of a PackedSequence depends on the data",
    ]


def test_a_run_is_recorded_as_it_was_computed(tmp_path, monkeypatch):
    """Where the failure shows at the first round only, the history says so."""
    problem = problem_with(Backward)
    monkeypatch.setattr("fedhv.engines.choosing.why_not_mappable", lambda *_: None)
    options = {"rounds": 2, "override": ["training.batch_size=4"]}
    stacked = run(problem, "uniform", engine="stacked", out=tmp_path / "s", **options)
    assert [record["engine"] for record in stacked.history] == ["sequential"] * 2
    plain = run(problem, "uniform", engine="sequential", **options)
    assert all(torch.equal(plain.state_dict[name], stacked.state_dict[name]) for name in plain.state_dict)


def test_a_stack_that_works_says_nothing_in_the_history():
    stack = Stacked(ZOO["gru"].problem(TINY, [5, 5, 5], test=3))
    list(simulate(stack, Uniform(), PLAN))
    assert stack.measured(1) == {}


def test_a_compilation_that_fails_leaves_the_stack(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("The compiler\nis not there. Install it.")

    monkeypatch.setattr(compiled.torch, "compile", fail)
    problem = ZOO["gru"].problem(TINY, [5, 5, 4], test=3)
    stack = Stacked(problem, compiled=True)
    found = list(simulate(stack, Uniform(), PLAN))[-1].state.model
    torch.testing.assert_close(found, list(simulate(Sequential(problem), Uniform(), PLAN))[-1].state.model)
    assert stack.obstacle is None
    assert stack.notes == ["The stack is computed without compilation, which failed: The compiler is not there."]


class Image(nn.Module):
    """Its convolution is one of the stack's kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Conv2d(1, 2, 3), nn.Linear(2, 3)

    def forward(self, images):
        return [self.head(torch.tanh(self.layer(images)).mean(dim=(2, 3)))]


@pytest.mark.parametrize("norm", ["refuse", "local"])
@pytest.mark.parametrize("first", ["training", "report", "evaluation", "metrics", "held out"])
def test_kernels_that_fail_leave_torchs_own_layers_whatever_is_computed_first(monkeypatch, first, norm):
    """As on a machine without a C compiler, where Triton can start nothing."""

    def fail(*_):
        raise RuntimeError("Failed to find C compiler. Please specify one.")

    rng = np.random.default_rng(3)
    clients = [(rng.standard_normal((6, 1, 5, 5)).astype(np.float32), [np.arange(6) % 3]) for _ in range(4)]

    def model() -> nn.Module:
        made = Image()
        if norm == "local":  # reports are then computed client by client
            made.layer = nn.Sequential(made.layer, nn.BatchNorm2d(2))
        return made

    task = classification("only", 3, metrics=["f1"])
    problem = Problem.from_clients(model, [task], clients, clients[0], norm=norm, validation=0.34)
    stack, loop = Stacked(problem), Sequential(problem)
    stack._install(with_stacked_kernels(stack._plain))
    monkeypatch.setattr("fedhv.engines.kernels.operators._convolve", fail)
    method = FedHV(reference=(2.0,)) if first == "report" else Uniform()
    theta = initial_state(loop, method, 0).model
    if first == "evaluation":
        assert stack.evaluate(theta) == loop.evaluate(theta)
    elif first == "metrics":
        stack.check_metrics(theta)
    elif first == "held out":
        call = Call(Evaluate(theta), Cohort([0, 2], 0, 1, PLAN.local))
        torch.testing.assert_close(stack.ask(call).stacks["losses"], loop.ask(call).stacks["losses"])
    if first not in ("training", "report"):
        assert stack.obstacle is not None
    for one, other in zip(simulate(loop, method, PLAN), simulate(stack, method, PLAN), strict=True):
        torch.testing.assert_close(other.state.model, one.state.model, rtol=1e-5, atol=1e-6)
    assert stack.notes[len(loop.notes) :] == [
        "Clients are computed one after the other. The model cannot be stacked: Failed to find C compiler."
    ]


def test_an_error_of_the_model_itself_is_raised_in_an_evaluation():
    """It comes again with torch's own layers."""

    class Broken(Image):
        def forward(self, images):
            if not self.training:
                raise RuntimeError("not for evaluation")
            return super().forward(images)

    clients = [(np.zeros((6, 1, 5, 5), np.float32), [np.arange(6) % 3]) for _ in range(2)]
    stack = Stacked(Problem.from_clients(Broken, [classification("only", 3)], clients, clients[0]))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="not for evaluation"):
            stack.evaluate(initial_state(stack, Uniform(), 0).model)


@pytest.mark.parametrize("error", [InputError("wrong"), MemoryError(), KeyboardInterrupt()])
def test_what_is_no_fault_of_the_stack_is_raised(monkeypatch, error):
    stack = Stacked(ZOO["gru"].problem(TINY, [5, 5, 4], test=3))

    def fail(*_):
        raise error

    monkeypatch.setattr(stack.steps, "gradients", fail)
    with pytest.raises(type(error)):
        list(simulate(stack, Uniform(), PLAN))
    assert stack.obstacle is None


def test_a_gradient_that_is_wrong_in_a_stack_is_found():
    """torch trains the padding of all clients but the first, where a model calls the function and no layer."""

    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.head = nn.Parameter(torch.randn(5, 4)), nn.Linear(4, 3)

        def forward(self, tokens):
            return [self.head(nn.functional.embedding(tokens, self.words, padding_idx=0).mean(dim=1))]

    tokens = np.zeros((6, 4), np.int64)
    clients = [(tokens, [np.arange(6) % 3]) for _ in range(3)]
    problem = Problem.from_clients(Padded, [classification("only", 3)], clients, clients[0])
    choice = choose_engine("stacked", "cpu", problem=problem)
    assert choice.engine == "sequential"
    assert choice.reason.endswith("its gradient in a stack is not the gradient of a client alone")
