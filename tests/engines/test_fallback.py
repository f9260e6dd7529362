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
from fedhv.simulation.rounds import Plan, simulate
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


@pytest.mark.parametrize("error", [InputError("wrong"), MemoryError(), KeyboardInterrupt()])
def test_what_is_no_fault_of_the_stack_is_raised(monkeypatch, error):
    stack = Stacked(ZOO["gru"].problem(TINY, [5, 5, 4], test=3))

    def fail(*_):
        raise error

    monkeypatch.setattr(stack, "_gradients", fail)
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
