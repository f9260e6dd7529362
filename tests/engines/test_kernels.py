"""Stacked layers: the operators that a GPU's kernels stand behind, checked here by what they do on a CPU.

The Triton kernels themselves are compared with double precision by `benchmarks/gpu_kernels.py` on a GPU, and here
by Triton's interpreter where Triton is installed.
"""

from __future__ import annotations

import copy
import importlib.util
import itertools
import re
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from problems import everything_random
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from triton_interpreter import interpreted

from fedhv import LocalTraining
from fedhv.benchmarks.models import CIFARNet, LeNet, ResNet18
from fedhv.engines import Stacked
from fedhv.engines.compiled import Compiled
from fedhv.engines.kernels.ahead import compile_all
from fedhv.engines.kernels.fusion import Convolution, Normalisation, _first_step, with_stacked_kernels
from fedhv.engines.kernels.geometry import Geometry
from fedhv.engines.kernels.group_norm import Normalise, _normalise, _normalise_backward, normalise
from fedhv.engines.kernels.operators import Convolve, _convolve, _convolve_backward, convolve
from fedhv.problem.parameters import Layout, flatten
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.exchange import Call
from fedhv.protocol.requests import Train
from fedhv.support.errors import FedHVError

GEOMETRIES = [
    (3, (8, 8), 64, (3, 3), Geometry(1, 1, 2), True),
    (1, (14, 14), 10, (3, 3), Geometry(1, 1, 2), True),
    (10, (7, 7), 15, (3, 3), Geometry(1, 0, 2), True),  # 5 × 5 before pooling: the last row and column are in no window
    (16, (8, 8), 24, (3, 3), Geometry(2, 1), False),
    (16, (8, 8), 24, (1, 1), Geometry(2, 0), False),
    (8, (4, 4), 8, (3, 3), Geometry(1, 1), True),
    (3, (7, 10), 5, (2, 2), Geometry(3, 1), True),  # with a stride above the kernel some pixels meet no tap
    (17, (9, 6), 33, (5, 5), Geometry(2, 2), True),
    (4, (6, 9), 6, (2, 3), Geometry(1, 2, 2), False),  # windows that see nothing but padding
    (2, (8, 5), 3, (1, 1), Geometry(4, 3), True),
    (1, (1, 1), 3, (3, 3), Geometry(1, 1), True),
    (64, (6, 7), 64, (3, 3), Geometry(1, 1, 2), True),  # wide layers' gradients are products of scaled halves
    (65, (5, 5), 72, (3, 3), Geometry(2, 1), False),
    (130, (4, 4), 129, (3, 3), Geometry(1, 1), True),  # wider ones are summed tap by tap
]


def expected(x: Tensor, w: Tensor, b: Tensor | None, geometry: Geometry) -> Tensor:
    """What torch's own layers give, client after client."""
    ys = []
    for i in range(len(x)):
        y = F.conv2d(x[i], w[i], None if b is None else b[i], geometry.stride, geometry.padding)
        ys.append(F.relu(F.max_pool2d(y, 2)) if geometry.pool == 2 else y)
    return torch.stack(ys)


@pytest.mark.parametrize("examples", [1, 2])
@pytest.mark.parametrize(("C", "size", "outputs", "kernel", "geometry", "bias"), GEOMETRIES)
def test_operator_is_every_clients_own_convolution(C, size, outputs, kernel, geometry, bias, examples):
    torch.manual_seed(0)
    x = torch.randn(3, examples, C, *size, requires_grad=True)
    w = torch.randn(3, outputs, C, *kernel, requires_grad=True)
    b = torch.randn(3, outputs, requires_grad=True) if bias else None
    wanted = [t for t in (x, w, b) if t is not None]
    y, *_ = Convolve.apply(x, w, w.detach().permute(0, 3, 4, 1, 2).contiguous(), b, geometry, True)
    reference = expected(x, w, b, geometry)
    torch.testing.assert_close(y, reference)
    g = torch.randn_like(reference)
    for got, right in zip(torch.autograd.grad(y, wanted, g), torch.autograd.grad(reference, wanted, g), strict=True):
        torch.testing.assert_close(got, right)


BEHIND = {
    "none": nn.Identity(),
    "relu": nn.ReLU(),
    "relu6": nn.ReLU6(),
    "hardswish": nn.Hardswish(),
    "silu": nn.SiLU(),
}


@pytest.mark.parametrize("activation", BEHIND)
@pytest.mark.parametrize(("C", "groups"), [(8, 2), (6, 1), (12, 12)])
def test_operator_is_every_clients_own_normalisation(C, groups, activation):
    torch.manual_seed(0)
    x = (5 + torch.randn(3, 2, C, 5, 4)).requires_grad_()
    gamma, beta = (3 * torch.randn(3, C)).requires_grad_(), (3 * torch.randn(3, C)).requires_grad_()
    y, _, _ = Normalise.apply(x, gamma, beta, groups, 1e-5, activation)
    reference = torch.stack([F.group_norm(x[i], groups, gamma[i], beta[i]) for i in range(3)])
    reference = BEHIND[activation](reference)
    torch.testing.assert_close(y, reference)
    g = torch.randn_like(reference)
    wanted = (x, gamma, beta)
    for got, right in zip(torch.autograd.grad(y, wanted, g), torch.autograd.grad(reference, wanted, g), strict=True):
        torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-5)


def layouts(tensors: Sequence[Tensor]) -> list[tuple[object, ...]]:
    """Shapes, types and strides; an axis of one entry may have any stride."""
    return [
        (t.shape, t.dtype, [stride for stride, size in zip(t.stride(), t.shape, strict=True) if size > 1])
        for t in tensors
    ]


def answers(operator: Callable[..., tuple[Tensor, ...]], *arguments: object) -> tuple[Tensor, ...]:
    """What an operator gives, after a look at what the compiler is told of it: inductor relies on every stride."""
    with FakeTensorMode() as mode:
        told = operator(*(mode.from_tensor(a) if isinstance(a, Tensor) else a for a in arguments))
    given = operator(*arguments)
    assert layouts(told) == layouts(given)
    return given


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(("C", "size", "outputs", "kernel", "geometry", "bias"), GEOMETRIES)
def test_the_compiler_is_told_how_results_lie_in_memory(C, size, outputs, kernel, geometry, bias, channels_last):
    x, taps = torch.randn(2, 3, C, *size), torch.randn(2, *kernel, outputs, C)
    if channels_last:
        x = x.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)
    g = (geometry.stride, geometry.padding, geometry.pool)
    y, which, *_, largest = answers(_convolve, x, taps, torch.randn(2, outputs) if bias else None, *g, True)
    for needs_input in (True, False):
        answers(_convolve_backward, torch.randn_like(y), which, x, taps, largest, bias, needs_input, *g)
    gamma, beta = torch.randn(2, C), torch.randn(2, C)
    y, mean, scale = answers(_normalise, x, gamma, beta, C, 1e-5, "relu")
    answers(_normalise_backward, torch.randn_like(y), x, gamma, beta, mean, scale, "relu")


def mapped_with_gradients(function: Callable[..., Tensor], dims: tuple[int | None, ...], *arguments: Tensor):
    arguments = tuple(argument.clone().requires_grad_() for argument in arguments)
    y = torch.func.vmap(function, in_dims=dims)(*arguments)
    weights = torch.arange(y.numel(), dtype=y.dtype).reshape(y.shape).cos()
    return [y, *torch.autograd.grad((y * weights).sum(), arguments)]


@pytest.mark.parametrize("dims", [d for d in itertools.product((0, 1, None), (0, None), (0, None)) if d != (None,) * 3])
def test_mapped_calls_may_share_arguments(dims):
    """Any of images, weights and biases; what they share gets the gradients of all."""
    torch.manual_seed(0)

    def several(dim: int | None, *shape: int) -> Tensor:
        return torch.randn(shape) if dim is None else torch.randn(3, *shape).movedim(0, dim).contiguous()

    x, w, b = several(dims[0], 2, 6, 5, 7), several(dims[1], 4, 6, 2, 2), several(dims[2], 4)
    gamma, beta = several(dims[1], 6), several(dims[2], 6)
    for mine, torchs, arguments in [
        (lambda *a: convolve(*a, Geometry(3, 2)), lambda *a: F.conv2d(*a, 3, 2), (x, w, b)),
        (
            lambda *a: convolve(*a, Geometry(1, 1, 2)),
            lambda *a: F.relu(F.max_pool2d(F.conv2d(*a, 1, 1), 2)),
            (x, w, b),
        ),
        (lambda *a: normalise(*a, 3, 1e-5, "none"), lambda x, *a: F.group_norm(x, 3, *a), (x, gamma, beta)),
    ]:
        got, right = (mapped_with_gradients(f, dims, *arguments) for f in (mine, torchs))
        torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-4)


def test_what_is_not_finite_shows_behind_a_fused_relu():
    layers = with_stacked_kernels(nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()))
    assert layers(torch.full((1, 1, 4, 4), torch.nan)).isnan().all()
    layers = with_stacked_kernels(nn.Sequential(nn.GroupNorm(1, 2), nn.ReLU()))
    assert layers(torch.full((1, 2, 4, 4), torch.inf)).isnan().all()


def fused(chain: nn.Sequential) -> list[int]:
    """How many layers every step of a chain does."""
    layers, counts = list(chain), []
    while layers:
        counts.append(_first_step(layers)[1])
        layers = layers[counts[-1] :]
    return counts


def test_a_model_may_look_at_its_layers_and_take_them_one_by_one():
    """Attributes are there, slices and single layers give what they would give, and a chain as a whole is fused."""

    class Pyramid(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.GroupNorm(2, 4))
            self.body.append(nn.ReLU())

        def forward(self, images):
            levels, image = [], images
            for layer in self.body:
                image = layer(image)
                levels.append(image.flatten(1))
            assert isinstance(self.body[0], nn.Conv2d)
            flat = self.body(images).reshape(-1, self.body[0].out_channels * 16 // self.body[3].num_groups)
            return torch.cat([*levels, self.body[:2](images).flatten(1), flat.reshape(len(images), -1)], dim=1)

    torch.manual_seed(0)
    plain, images = Pyramid(), torch.randn(2, 3, 8, 8)
    stacked = with_stacked_kernels(plain)
    torch.testing.assert_close(stacked(images), plain(images))
    assert fused(stacked.body) == [3, 2]
    assert type(plain.body[0]) is nn.Conv2d


@pytest.mark.parametrize("activation", [name for name in BEHIND if name != "none"])
def test_activations_are_fused_with_the_normalisation_before_them(activation):
    """Also in a class of `Sequential` that computes nothing else, as torchvision's blocks are."""

    class Block(nn.Sequential):
        def __init__(self, width):
            super().__init__(
                nn.Conv2d(width, width, 1), nn.GroupNorm(2, width, eps=0.1), copy.deepcopy(BEHIND[activation])
            )
            self.width = width

    class Doubled(nn.Sequential):
        def forward(self, images):
            return 2 * super().forward(images)

    torch.manual_seed(0)
    layers = nn.Sequential(Block(4), Doubled(nn.GroupNorm(2, 4), nn.ReLU()), Block(4))
    stacked, images = with_stacked_kernels(layers), torch.randn(3, 4, 5, 5, requires_grad=True)
    assert fused(stacked[0]) == [1, 2]
    assert isinstance(stacked[0], Block)
    assert stacked[0].width == 4
    assert type(stacked[1]) is Doubled
    got, right = stacked(images), layers(images)
    torch.testing.assert_close(got, right)
    g = torch.randn_like(right)
    (got,), (right,) = (torch.autograd.grad(y, images, g) for y in (got, right))
    torch.testing.assert_close(got, right)


def test_normalisation_without_scale_and_shift_and_relu_behind_it():
    torch.manual_seed(0)
    layers = nn.Sequential(nn.GroupNorm(2, 4, affine=False), nn.ReLU(), nn.GroupNorm(2, 4), nn.Tanh())
    stacked = with_stacked_kernels(layers)
    assert [type(layer) for layer in stacked] == [Normalisation, nn.ReLU, Normalisation, nn.Tanh]
    assert fused(stacked) == [2, 1, 1]
    for shape in [(5, 5), (5,), (3, 2, 2), ()]:
        inputs = torch.randn(3, 2, 4, *shape)
        torch.testing.assert_close(stacked(inputs[0]), layers(inputs[0]))
        torch.testing.assert_close(torch.func.vmap(stacked)(inputs), torch.stack([layers(i) for i in inputs]))


@pytest.mark.parametrize(("model", "shape"), [(LeNet, (1, 28, 28)), (CIFARNet, (3, 32, 32)), (ResNet18, (3, 32, 32))])
def test_replaced_model_has_the_same_parameters_and_gradients(model, shape):
    torch.manual_seed(0)
    plain = model().eval()
    stacked = with_stacked_kernels(plain)
    m = len(plain.heads)
    layout = Layout.of(plain, m)
    assert Layout.of(stacked, m) == layout
    assert any(isinstance(layer, Convolution) for layer in stacked.modules())
    assert not any(type(layer) is nn.Conv2d for layer in stacked.modules())
    theta = torch.stack([flatten(plain) + 0.01 * torch.randn(layout.d) for _ in range(2)])
    images = torch.randn(2, 2, *shape)

    def gradients(module: nn.Module, theta: Tensor, images: Tensor) -> Tensor:
        def objective(theta: Tensor, images: Tensor) -> Tensor:
            outputs = torch.func.functional_call(module, layout.unflatten(theta), (images,))
            return sum(output.square().mean() for output in outputs)

        theta = theta.detach().requires_grad_()
        return torch.autograd.grad(torch.func.vmap(objective)(theta, images).sum(), theta)[0]

    right = gradients(plain, theta, images)
    error = (gradients(stacked, theta, images) - right).norm() / right.norm()
    assert error < 1e-3  # float32 through many layers; where a ReLU's input is nearly 0 its sign may differ
    torch.testing.assert_close(stacked(images[0])[0], plain(images[0])[0], rtol=1e-4, atol=1e-5)


def test_only_what_the_kernel_can_do_is_replaced():
    layers = nn.Sequential(
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Conv2d(4, 4, 3, dilation=2),
        nn.Conv2d(4, 4, 3, stride=(1, 2)),
        nn.Conv2d(4, 4, 3, padding="same"),
        nn.Conv2d(4, 4, 3, padding_mode="reflect", padding=1),
        nn.Conv2d(4, 4, 3, padding="valid"),
        nn.GroupNorm(2, 4),
    )
    kinds = [type(layer) for layer in with_stacked_kernels(layers)]
    assert kinds == [*[nn.Conv2d] * 5, Convolution, Normalisation]


@pytest.mark.parametrize("where", range(4))
def test_a_layer_that_somebody_watches_stays(where):
    """Hooks see what they would see, and may change it."""
    layers, seen = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.GroupNorm(2, 4), nn.ReLU()), []
    layers[where].register_forward_hook(lambda layer, inputs, output: seen.append(output))
    stacked, images = with_stacked_kernels(layers), torch.randn(2, 3, 8, 8)
    assert type(stacked[where]) is type(layers[where])
    torch.testing.assert_close(stacked(images), layers(images))
    torch.testing.assert_close(seen[0], seen[1])
    watched = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.ReLU())
    watched[where % 3].register_forward_pre_hook(lambda layer, inputs: None)
    assert 3 not in fused(with_stacked_kernels(watched))


@pytest.mark.parametrize(
    ("following", "pool"),
    [
        ([nn.MaxPool2d(2), nn.ReLU()], 2),
        ([nn.ReLU(), nn.MaxPool2d(2)], 2),
        ([nn.MaxPool2d(3), nn.ReLU()], 1),
        ([nn.MaxPool2d(2, ceil_mode=True), nn.ReLU()], 1),
        ([nn.MaxPool2d(2), nn.Tanh()], 1),
        ([nn.ReLU()], 1),
    ],
)
def test_pooling_and_relu_are_fused_where_they_follow(following, pool):
    layers = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), *following)
    stacked = with_stacked_kernels(layers)
    assert (fused(stacked)[0] == 3) == (pool == 2)
    images = torch.randn(2, 3, 9, 9)
    torch.testing.assert_close(stacked(images), layers(images))


def test_an_interrupt_inside_the_compiler_is_an_interrupt():
    def broken(*_: Tensor) -> Tensor:
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("the compiler's own disorder")

    function = Compiled(lambda x: x + 1)
    x = torch.zeros(2)
    function._compiled[(((2,), torch.float32),)] = broken
    with pytest.raises(KeyboardInterrupt):
        function(x)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU the kernels themselves run: benchmarks/gpu_kernels.py")
def test_kernels_in_tritons_interpreter():
    code = """
import torch
import torch.nn.functional as F
from fedhv.engines.kernels import launch
from fedhv.engines.kernels.activations import ACTIVATIONS
from fedhv.engines.kernels.geometry import Geometry
from fedhv.engines.kernels.group_norm import _normalise
from fedhv.engines.kernels.operators import _convolve, _convolve_backward
from fedhv.engines.kernels.wide import halved_like
from tests.engines.test_kernels import GEOMETRIES, expected, layouts
torch.manual_seed(0)
close = dict(rtol=1e-4, atol=1e-4)
for C, size, outputs, (KH, KW), geometry, bias in GEOMETRIES:
    x = torch.randn(2, 2, C, *size, requires_grad=True)
    w = torch.randn(2, outputs, C, KH, KW, requires_grad=True)
    b = torch.randn(2, outputs) if bias else None
    taps = w.detach().permute(0, 3, 4, 1, 2).contiguous()
    right = expected(x, w, b, geometry)
    apart = torch.empty(2, taps[0].numel() + 5)[:, 3:-2].unflatten(1, taps.shape[1:]).copy_(taps)  # as rows of a stack
    y, which, images, weights, largest = launch.forward(x.detach(), apart, b, geometry, True)
    reported = launch.forward(x.detach(), taps, b, geometry, False)
    assert all(not each.numel() for each in reported[1:])
    torch.testing.assert_close(reported[0], right, **close)
    halves = min(C, outputs) >= 64
    assert (largest.numel() > 0) == halves
    looser = dict(rtol=1e-3, atol=2e-3 * right.detach().std()) if halves else close
    torch.testing.assert_close(y, right, **looser)
    numbers = geometry.stride, geometry.padding, geometry.pool
    assert layouts([y, which]) == layouts(_convolve(x.detach(), taps, b, *numbers, True)[:2])
    if halves:
        assert layouts([images, weights, largest]) == layouts(halved_like(x, taps))
    g = torch.randn_like(right)
    chosen = right  # rounding may change which place of a window is largest: gradients belong to the kernel's choice
    if geometry.pool == 2:
        plain = expected(x, w, b, Geometry(geometry.stride, geometry.padding)).flatten(0, 1)
        windows = F.unfold(plain[:, :, :2 * y.shape[3], :2 * y.shape[4]].flatten(0, 1)[:, None], 2, stride=2)
        windows = windows.unflatten(0, y.shape[:3]).unflatten(4, y.shape[3:])  # … × 4 × PH × PW
        place = which.permute(0, 1, 4, 2, 3)[:, :, :, None].long()
        chosen = torch.where(place < 4, windows.gather(3, place.clamp(max=3)), 0.0).squeeze(3)
        torch.testing.assert_close(chosen, right, **looser)
    dx, dw = torch.autograd.grad(chosen, (x, w), g)
    back = _convolve_backward(g, which, x.detach(), taps, largest, bias, True, *numbers)
    g = g.permute(0, 1, 3, 4, 2).contiguous()
    factors = (images.permute(0, 1, 4, 2, 3), weights) if halves else (x.detach(), apart)
    given = launch.backward(g, which, *factors, largest, bias, True, geometry)
    looser = dict(rtol=1e-3, atol=2e-3 * dw.std()) if halves else close
    torch.testing.assert_close(given[0], dx, **(dict(rtol=1e-3, atol=2e-3 * dx.std()) if halves else close))
    torch.testing.assert_close(given[1].permute(0, 3, 4, 1, 2), dw, **looser)
    torch.testing.assert_close(given[2], back[2], **looser)
    assert layouts(given) == layouts(back)
    alone = launch.backward(g, which, *factors, largest, bias, False, geometry)
    assert torch.equal(alone[1], given[1]) and not alone[0].numel()
torch.manual_seed(0)
for C, side, groups, activation in [
    (8, 5, 2, "relu"), (6, 40, 1, "none"), (12, 3, 12, "relu"), (5, 60, 1, "relu"), (6, 9, 2, "relu6"),
    (6, 9, 2, "hardswish"), (6, 9, 2, "silu"),
]:
    x = (5 + torch.randn(2, 3, C, side, side)).requires_grad_()
    gamma, beta = (3 * torch.randn(2, C)).requires_grad_(), (3 * torch.randn(2, C)).requires_grad_()
    right = torch.stack([F.group_norm(x[i], groups, gamma[i], beta[i]) for i in range(2)])
    right = ACTIVATIONS[activation].forward(right)
    y, mean, scale = launch.normalise(x.detach(), gamma.detach(), beta.detach(), groups, 1e-5, activation)
    torch.testing.assert_close(y, right, **close)
    cpu = _normalise(x.detach(), gamma.detach(), beta.detach(), groups, 1e-5, activation)
    assert layouts([y, mean]) == layouts(cpu[:2])
    g = torch.randn_like(right)
    apart = torch.cat([gamma.detach(), beta.detach()], dim=1)  # clients lie apart, as in a stack's rows
    dx, sums = launch.normalise_backward(g, x.detach(), apart[:, :C], apart[:, C:], mean, scale, activation)
    for got, wanted in zip((dx, *sums), torch.autograd.grad(right, (x, gamma, beta), g)):
        torch.testing.assert_close(got, wanted, **close)
nothing = torch.full((1, 1, 2, 4, 4), torch.nan)
assert launch.forward(nothing, torch.ones(1, 3, 3, 4, 2), None, Geometry(1, 1, 2), True)[0].isnan().all()
some = torch.randn(1, 1, 2, 8, 8)
some[..., 3, 3] = torch.nan  # some windows have numbers beside it
expected = torch.nn.functional.conv2d(some[0], torch.ones(4, 2, 3, 3), padding=1).isnan()
expected = torch.nn.functional.max_pool2d(expected.float(), 2) > 0
assert 0 < expected.sum() < expected.numel()
got, which, *_ = launch.forward(some, torch.ones(1, 3, 3, 4, 2), None, Geometry(1, 1, 2), True)
assert torch.equal(got[0].isnan(), expected)
assert torch.equal((which == 4).permute(0, 1, 4, 2, 3)[got.isnan()], torch.ones(int(expected.sum()), dtype=torch.bool))
assert launch.normalise(nothing, torch.ones(1, 2), torch.ones(1, 2), 1, 1e-5, "relu")[0].isnan().all()
for rows, count, size in [(3, 2, 5), (2, 33, 70), (1, 70, 3000), (4, 1, 6), (2, 3, 0)]:
    values = torch.randn(rows, count, size)
    torch.testing.assert_close(launch.summed(values), values.sum(dim=1))
"""
    interpreted(code)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_kernels_are_planned_for_the_addresses_of_their_tensors():
    from triton._C.libtriton import native_specialize_impl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend

    from fedhv.engines.kernels.starting import _representative

    backend = type(make_backend(GPUTarget("cuda", 90, 32)))
    values = torch.zeros(9)
    for given in (values, values[1:], values[4:], values.half(), 1, 16, 17, 48, 2**33):
        for specialised in (True, False):
            alike = _representative(given, specialised)
            code = [native_specialize_impl(backend, each, False, specialised, True) for each in (given, alike)]
            assert code[0] == code[1], given
    assert len({_representative(number, False) for number in (1, 3, 16, 2000)}) == 1


LAYERS = [  # channels, side, outputs, kernel
    (1, 28, 20, 5, Geometry(1, 0, 2)),
    (20, 12, 50, 5, Geometry(1, 0, 2)),
    (3, 32, 64, 3, Geometry(1, 1, 2)),
    (64, 16, 128, 3, Geometry(1, 1, 2)),
    (64, 32, 128, 1, Geometry(2, 0)),
    (128, 16, 128, 3, Geometry(1, 1)),
    (512, 4, 512, 3, Geometry(1, 1)),
]


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_the_kernels_of_a_stack_do_not_depend_on_its_number_of_clients(monkeypatch):
    """They are planned for a cohort; methods with task gradients stack m times as many trajectories, or portions."""
    from fedhv.engines.kernels import launch, starting

    chip = starting.Chip(0, None, 232_448, None)
    monkeypatch.setattr(starting.Chip, "of", lambda device: chip)

    def planned(n: int) -> set[object]:
        with starting.planning() as found:
            for C, side, outputs, K, geometry in LAYERS:
                x, size = torch.zeros(n, 8, C, side, side), outputs * C * K * K
                row = torch.zeros(n, size + outputs + 3)  # clients are rows of a stack
                taps, b = row[:, :size].unflatten(1, (K, K, outputs, C)), row[:, size : size + outputs]
                y, which, images, weights, largest = launch.forward(x, taps, b, geometry, True)
                factors = (images.permute(0, 1, 4, 2, 3), weights) if largest.numel() else (x, taps)
                g = torch.zeros(y.permute(0, 1, 3, 4, 2).shape)
                launch.backward(g, which, *factors, largest, True, True, geometry)
                each = torch.zeros(n, K, K, C)
                g = launch.depthwise(x, each, None, Geometry(geometry.stride, geometry.padding))
                launch.depthwise_backward(g, x, each, True, True, Geometry(geometry.stride, geometry.padding))
        return set(found)

    cohort = planned(10)
    assert len({each.kernel for each in cohort}) > 8
    for n in (3, 20, 30):
        assert planned(n) == cohort


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_a_signal_ends_the_pass_that_plans_kernels():
    engine, cohort = Stacked(everything_random()), Cohort([0, 1], 0, 1, LocalTraining(2, 4, 0.1))
    call = Call(Train(torch.zeros(engine.layout.d)), cohort)
    engine._compile_kernels([call])
    engine.stopping = lambda: True
    with pytest.raises(KeyboardInterrupt):
        engine._compile_kernels([call])


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_a_kernel_is_loaded_where_it_is_compiled_ahead(monkeypatch):
    """A model has many, and the first step, which would load them one after the other, cannot be interrupted."""
    from fedhv.engines.kernels.starting import Chip, Planned

    loaded = []

    class Made:
        metadata = SimpleNamespace(shared=0)

        def _init_handles(self):
            loaded.append(threading.current_thread())

    monkeypatch.setattr(torch.cuda, "set_device", lambda number: None)
    kernel = SimpleNamespace(warmup=lambda *arguments, grid, **constants: Made())
    compile_all([Planned(kernel, (), (), "key", Chip(0, None, 1, None))])
    (thread,) = loaded
    assert thread is not threading.main_thread()
    older = SimpleNamespace(warmup=lambda *arguments, grid, **constants: SimpleNamespace(metadata=Made.metadata))
    Planned(older, (), (), "key", Chip(0, None, 1, None)).compile()


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize("channels", [64, 128])
def test_tiles_are_not_overwritten_while_tensor_cores_read_them(channels):
    """Asynchronous products need as many buffers as tiles are fetched ahead: a second reader would take one away."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from fedhv.engines.kernels.launch import _tap_tiles
    from fedhv.engines.kernels.weight_gradients import tap_gradient_kernel as kernel

    tiles = _tap_tiles(channels, channels, 9, torch.float16)
    options = {name: tiles.pop(name) for name in ("num_warps", "num_stages")}
    sizes = dict.fromkeys(("H", "W", "OH", "OW"), 8) | dict.fromkeys(("C", "O"), channels)
    constants = dict(**sizes, KH=3, KW=3, STRIDE=1, PADDING=1, BIAS=True, HALVES=True, **tiles)
    pointers = {"g": "*fp16", "x": "*fp16", "dw": "*fp32", "db": "*fp32", "largest_g": "*i32", "largest_x": "*i32"}
    numbers = dict.fromkeys(("POSITIONS", "SPLITS", "STEPS"), "i32")
    names = kernel.arg_names
    kinds = {**pointers, **numbers, **dict.fromkeys(constants, "constexpr")}
    source = ASTSource(
        kernel,
        {name: kinds[name] for name in names},
        {(names.index(name),): value for name, value in constants.items()},
        {(names.index(name),): [["tt.divisibility", 16]] for name in (*pointers, "POSITIONS")},
    )
    code = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ttgir"]
    assert "isAsync = true" in code
    buffers = re.findall(r"local_alloc : \(\) -> !ttg.memdesc<(\d+)x", code)
    assert buffers == ["3"] * (1 + tiles["TAPS"])


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_smaller_gpus_fetch_fewer_tiles_ahead(monkeypatch):
    from triton.runtime.errors import OutOfResources

    from fedhv.engines.kernels import starting

    tried = []

    class Kernel:
        """Takes 100 kB of shared memory for every tile ahead."""

        def __init__(self, memory):
            self.memory = memory

        def __getitem__(self, grid):
            return self

        def __call__(self, *arguments, num_stages, **constants):
            tried.append(num_stages)
            if 100 * num_stages > self.memory:
                raise OutOfResources(100 * num_stages, self.memory, "shared memory")

    monkeypatch.setattr(starting, "_AHEAD", {})
    x = torch.zeros(2)
    large, small, tiny = Kernel(300), Kernel(100), Kernel(50)
    starting.launch(large, (1,), x, num_stages=3)
    assert tried == [3]
    for _ in range(2):
        starting.launch(small, (1,), x, num_stages=3, BM=128)
    starting.launch(small, (1,), x, num_stages=2, BM=64)  # other tiles are another program
    assert tried == [3, 3, 2, 1, 1, 2, 1]
    with pytest.raises(FedHVError, match=r"^This GPU has too little shared memory .* Use --precision float32\.$"):
        starting.launch(tiny, (1,), x, num_stages=3)
