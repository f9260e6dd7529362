"""Formulations of layers give torch's own outputs and gradients, in float64, mapped over clients."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from fedhv.engines.formulations import mappable_calls, with_mappable_layers
from fedhv.engines.formulations.calls import StackedCalls

CLIENTS, TIME, BATCH, INPUTS, HIDDEN = 3, 5, 4, 6, 8

RECURRENT = {
    "rnn-tanh": lambda: nn.RNN(INPUTS, HIDDEN),
    "rnn-relu": lambda: nn.RNN(INPUTS, HIDDEN, 2, nonlinearity="relu", bidirectional=True),
    "gru": lambda: nn.GRU(INPUTS, HIDDEN, batch_first=True),
    "gru-deep": lambda: nn.GRU(INPUTS, HIDDEN, 3, bidirectional=True),
    "gru-no-bias": lambda: nn.GRU(INPUTS, HIDDEN, bias=False),
    "lstm": lambda: nn.LSTM(INPUTS, HIDDEN, batch_first=True),
    "lstm-deep": lambda: nn.LSTM(INPUTS, HIDDEN, 2, bidirectional=True, batch_first=True),
    "lstm-projected": lambda: nn.LSTM(INPUTS, HIDDEN, 2, proj_size=3, bidirectional=True),
    "lstm-no-bias": lambda: nn.LSTM(INPUTS, HIDDEN, bias=False, proj_size=2),
}
recurrent = pytest.mark.parametrize("make", RECURRENT.values(), ids=RECURRENT)


def flat(outputs) -> list[Tensor]:
    return [outputs] if isinstance(outputs, Tensor) else [leaf for each in outputs for leaf in flat(each)]


def assert_same(layer: nn.Module, arguments: list, training: bool = True) -> None:
    """Outputs and the gradients of all parameters and floating-point arguments, client by client.

    Every argument has the clients first; every output counts in the gradient, with weights of its own.
    """
    layer = layer.double().train(training)
    torch.manual_seed(7)
    names = [name for name, _ in layer.named_parameters()]
    parameters = [torch.randn(CLIENTS, *p.shape, dtype=torch.float64, requires_grad=True) for p in layer.parameters()]
    leaves = [*parameters, *(a.requires_grad_() for a in flat(arguments) if a.is_floating_point())]

    def call(module: nn.Module) -> Callable[..., list[Tensor]]:
        def function(values: list[Tensor], given: list) -> list[Tensor]:
            with mappable_calls(torch.device("cpu")):
                return flat(torch.func.functional_call(module, dict(zip(names, values, strict=True)), tuple(given)))

        return function

    def scalar(outputs: list[Tensor]) -> Tensor:
        factors = [torch.linspace(0.5, 1.5, y[0].numel(), dtype=y.dtype).view_as(y[0]) for y in outputs]
        return sum((y * factor).sum() for y, factor in zip(outputs, factors, strict=True))

    formulated = with_mappable_layers(layer)
    mapped = torch.func.vmap(call(formulated))(parameters, arguments)
    alone = [
        call(layer)([p[j] for p in parameters], torch.utils._pytree.tree_map(lambda a, j=j: a[j], arguments))
        for j in range(CLIENTS)
    ]
    own = [torch.stack(each) for each in zip(*alone, strict=True)]
    torch.testing.assert_close(mapped, own, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        torch.autograd.grad(scalar(mapped), leaves), torch.autograd.grad(scalar(own), leaves), rtol=1e-11, atol=1e-11
    )
    assert [(name, p.shape) for name, p in formulated.named_parameters()] == [
        (name, p.shape) for name, p in layer.named_parameters()
    ]


def numbers(*shape: int) -> Tensor:
    return torch.randn(CLIENTS, *shape, dtype=torch.float64)


@recurrent
@pytest.mark.parametrize("state", ["given", "none"])
@pytest.mark.parametrize("batch", ["batch", "one sequence"])
def test_a_recurrent_layer_is_torchs_own(make, state, batch):
    torch.manual_seed(1)
    layer = make()
    several = [BATCH] * (batch == "batch")
    shape = [*several, TIME] if layer.batch_first else [TIME, *several]
    arguments: list = [numbers(*shape, INPUTS)]
    if state == "given":
        rows = layer.num_layers * (2 if layer.bidirectional else 1)
        h = numbers(rows, *several, layer.proj_size or HIDDEN)
        arguments.append((h, numbers(rows, *several, HIDDEN)) if isinstance(layer, nn.LSTM) else h)
    assert_same(layer, arguments)


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
@pytest.mark.parametrize("state", ["given", "none"])
def test_a_cell_is_torchs_own(kind, state):
    torch.manual_seed(1)
    h, c = numbers(BATCH, HIDDEN), numbers(BATCH, HIDDEN)
    given = [(h, c) if kind is nn.LSTMCell else h] * (state == "given")
    assert_same(kind(INPUTS, HIDDEN), [numbers(BATCH, INPUTS), *given])


def test_dropout_between_layers_is_drawn_in_training_alone():
    torch.manual_seed(1)
    inputs, layer = numbers(TIME, BATCH, INPUTS), nn.GRU(INPUTS, HIDDEN, 2, dropout=0.5)
    assert_same(layer, [inputs], training=False)
    formulated = with_mappable_layers(layer)

    def outputs(training: bool) -> Tensor:
        formulated.train(training)
        return torch.func.vmap(lambda x: formulated(x)[0], randomness="different")(inputs)

    assert torch.equal(outputs(False), outputs(False))
    assert not torch.allclose(outputs(True), outputs(False))
    assert not torch.allclose(outputs(True), outputs(True))


def test_outside_of_a_stack_a_layer_is_torchs_own_to_the_bit():
    torch.manual_seed(1)
    layer, inputs = nn.LSTM(INPUTS, HIDDEN), torch.randn(TIME, BATCH, INPUTS)
    assert torch.equal(with_mappable_layers(layer)(inputs)[0], layer(inputs)[0])
    packed = pack_padded_sequence(inputs, torch.tensor([5, 4, 2, 1]))
    assert torch.equal(with_mappable_layers(layer)(packed)[0].data, layer(packed)[0].data)


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("padding", [None, 0, -1])
def test_bags_are_torchs_own(mode, padding):
    tokens = torch.randint(0, 7, (CLIENTS, BATCH, TIME), generator=torch.Generator().manual_seed(2))
    tokens[0, 0] = 0  # a bag of nothing but padding
    assert_same(nn.EmbeddingBag(7, 3, mode=mode, padding_idx=padding), [tokens])


def test_weighted_bags_are_torchs_own():
    tokens = torch.randint(0, 7, (CLIENTS, BATCH, TIME), generator=torch.Generator().manual_seed(2))

    class Weighted(nn.EmbeddingBag):
        pass

    layer = nn.EmbeddingBag(7, 3, mode="sum")
    assert type(with_mappable_layers(Weighted(7, 3))) is Weighted  # what a subclass computes is not known
    torch.manual_seed(1)
    shares, weight = torch.rand(CLIENTS, BATCH, TIME), torch.randn(CLIENTS, 7, 3)
    bags = with_mappable_layers(layer)
    mapped = torch.func.vmap(
        lambda w, t, s: torch.func.functional_call(bags, {"weight": w}, (t,), {"per_sample_weights": s})
    )(weight, tokens, shares)
    own = [F.embedding_bag(tokens[j], weight[j], mode="sum", per_sample_weights=shares[j]) for j in range(CLIENTS)]
    torch.testing.assert_close(mapped, torch.stack(own))


@pytest.mark.parametrize("padding", [0, 3, -1])
def test_padding_gets_no_gradient_of_any_client(padding):
    tokens = torch.randint(0, 7, (CLIENTS, BATCH, TIME), generator=torch.Generator().manual_seed(2))
    assert_same(nn.Embedding(7, 3, padding_idx=padding), [tokens])


class Attending(nn.Module):
    """Scaled dot-product attention with options."""

    def __init__(self, **options) -> None:
        super().__init__()
        self.qkv, self.options = nn.Linear(INPUTS, 3 * HIDDEN), options

    def forward(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.qkv(inputs).view(BATCH, TIME, 3, 2, -1).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **self.options)


def test_attention_is_torchs_own():
    torch.manual_seed(1)
    inputs = numbers(BATCH, TIME, INPUTS)
    assert_same(Attending(), [inputs])
    assert_same(Attending(is_causal=True), [inputs])
    assert_same(Attending(scale=0.2), [inputs, numbers(BATCH, 1, TIME, TIME)])
    visible = torch.rand(CLIENTS, BATCH, 1, TIME, TIME) > 0.4
    assert_same(Attending(), [inputs, visible | torch.eye(TIME, dtype=torch.bool)])
    assert_same(nn.TransformerEncoderLayer(INPUTS, 2, 8, dropout=0.0, batch_first=True), [inputs], training=False)


def test_dropout_of_attention_differs_between_clients():
    torch.manual_seed(1)
    inputs, layer = torch.randn(BATCH, TIME, INPUTS), Attending(dropout_p=0.5)

    def outputs(x: Tensor) -> Tensor:
        with mappable_calls(torch.device("cpu")):
            return layer(x)

    one, other = torch.func.vmap(outputs, randomness="different")(torch.stack([inputs, inputs]))
    assert not torch.allclose(one, other)


@pytest.mark.parametrize("channels_last", [False, True])
def test_the_gradient_of_a_mean_of_places_lies_in_memory_as_the_images_do(channels_last):
    """Gradients of another order would be copied in every layer that they reach."""
    images = torch.randn(CLIENTS, BATCH, 3, 5, 4)
    if channels_last:
        images = images.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)
    images.requires_grad_()
    pooled = torch.func.vmap(with_mappable_layers(nn.Sequential(nn.AdaptiveAvgPool2d(1))))(images)
    torch.testing.assert_close(pooled, images.mean(dim=(3, 4), keepdim=True))
    (g,) = torch.autograd.grad(pooled.square().sum(), images)
    torch.testing.assert_close(g, (pooled / 10).expand_as(images))
    assert (g.stride(2) == 1) == channels_last


def test_averages_that_a_model_calls_are_those_of_torch():
    images = torch.randn(CLIENTS, 2, 3, 4, 6)

    def both(some: Tensor) -> Tensor:
        each = [F.adaptive_avg_pool2d(some, size).flatten(1) for size in (1, (1, 1), (2, 3))]
        return torch.cat(each, dim=1)

    def inside(some: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16), mappable_calls(torch.device("cpu")):
            return both(some)

    torch.testing.assert_close(torch.func.vmap(inside)(images), torch.stack([both(some) for some in images]))


def test_the_backends_of_attention_are_put_back():
    def backends() -> tuple[bool, ...]:
        return torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled()

    def fail() -> None:
        with mappable_calls(torch.device("cpu")):
            assert backends() == (False, False)
            raise ZeroDivisionError

    before = backends()
    with pytest.raises(ZeroDivisionError):
        fail()
    assert backends() == before == (True, True)


def test_a_model_without_such_layers_is_not_copied():
    model = nn.Sequential(nn.Linear(2, 2), nn.Embedding(3, 2))
    assert with_mappable_layers(model) is model


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cross_entropy_of_a_stack_is_torchs(dtype):
    """Losses and gradients have the bits of torch's own rule for `vmap`; ignored examples count nothing."""
    torch.manual_seed(0)
    outputs, targets = torch.randn(3, 5, 4, dtype=dtype), torch.randint(0, 4, (3, 5))
    targets[1, 2] = -100

    def losses_and_gradients():
        x = outputs.clone().requires_grad_()
        losses = torch.func.vmap(lambda x, y: F.cross_entropy(x, y, reduction="none"))(x, targets)
        return losses.detach(), torch.autograd.grad((losses * torch.arange(5)).sum(), x)[0]

    right = losses_and_gradients()
    with StackedCalls(torch.device("cpu")):
        got = losses_and_gradients()
    assert all(torch.equal(a, b) for a, b in zip(got, right, strict=True))
    assert got[0][1, 2] == 0


@pytest.mark.parametrize(
    "options", [{}, {"reduction": "sum"}, {"label_smoothing": 0.1}, {"weight": torch.arange(4.0), "reduction": "none"}]
)
def test_other_cross_entropies_are_left_to_torch(options):
    outputs, classes = torch.randn(5, 4), torch.randint(0, 4, (5,))
    for targets in (classes, F.one_hot(classes, 4).float()):
        with StackedCalls(torch.device("cpu")):
            got = F.cross_entropy(outputs, targets, **options)
        assert torch.equal(got, F.cross_entropy(outputs, targets, **options))


def test_a_stack_does_not_import_torchs_compiler():
    """It takes seconds, in which a run does not begin and Ctrl-C is not noticed; only compiled rounds need it."""
    code = """
import sys
sys.path.insert(0, "tests/engines")
import torch
from zoo import TINY, ZOO
from fedhv import LocalTraining, Uniform
from fedhv.engines.kernels.fusion import with_stacked_kernels
from fedhv.engines.mappable import why_not_mappable
from fedhv.engines.stacked import Stacked
from fedhv.simulation.rounds import Plan, simulate
for name in ("resnet", "mobilenet", "transformer"):
    problem = ZOO[name].problem(TINY, [8] * 3, test=8)
    assert why_not_mappable(problem, precision="bf16") is None
    engine = Stacked(problem, precision="bf16")  # so that calls are replaced, as on a GPU
    engine.client.network.module = with_stacked_kernels(engine.client.network.module)
    *_, last = simulate(engine, Uniform(), Plan(rounds=1, participants=3, local=LocalTraining(2, 4, 0.02)))
    assert engine.obstacle is None
found = [name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules]
assert not found, found
"""
    path = os.pathsep.join(["src", os.environ.get("PYTHONPATH", "")])
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, env={**os.environ, "PYTHONPATH": path})
