"""Depthwise and 1 × 1 convolutions of a stack: torch's own results and gradients, on a CPU.

The Triton kernels behind the first are compared with double precision by `benchmarks/gpu_kernels.py`.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses import FakeTensorMode
from zoo import TINY, ZOO

from fedhv.engines.formulations import with_mappable_layers
from fedhv.engines.formulations.calls import StackedCalls
from fedhv.engines.kernels.depthwise import Depthwise, _depthwise, _depthwise_backward, depthwise
from fedhv.engines.kernels.fusion import Convolution, DepthwiseConvolution, with_stacked_kernels
from fedhv.engines.kernels.geometry import Geometry
from fedhv.engines.kernels.linear import Linear, aligned, linear, parts_of, pointwise

GEOMETRIES = [
    (4, (8, 8), 3, Geometry(1, 1)),
    (4, (8, 8), 3, Geometry(1, 2, dilation=2)),
    (6, (9, 7), 5, Geometry(2, 2)),
    (3, (7, 7), 3, Geometry(2, 0, dilation=2)),
]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("C", "size", "kernel", "geometry"), GEOMETRIES)
def test_operator_is_every_clients_own_depthwise_convolution(C, size, kernel, geometry, bias):
    torch.manual_seed(0)
    x, w = torch.randn(3, 2, C, *size).requires_grad_(), torch.randn(3, C, 1, kernel, kernel).requires_grad_()
    b = torch.randn(3, C).requires_grad_() if bias else None
    wanted = [each for each in (x, w, b) if each is not None]
    y = Depthwise.apply(x, w, w.detach().squeeze(2).permute(0, 2, 3, 1).contiguous(), b, geometry)
    own = [
        F.conv2d(x[i], w[i], None if b is None else b[i], geometry.stride, geometry.padding, geometry.dilation, C)
        for i in range(3)
    ]
    reference = torch.stack(own)
    torch.testing.assert_close(y, reference)
    g = torch.randn_like(reference)
    for got, right in zip(torch.autograd.grad(y, wanted, g), torch.autograd.grad(reference, wanted, g), strict=True):
        torch.testing.assert_close(got, right)


@pytest.mark.parametrize(("C", "size", "kernel", "geometry"), GEOMETRIES)
def test_the_compiler_is_told_how_results_lie_in_memory(C, size, kernel, geometry):
    x, taps, numbers = (
        torch.randn(2, 3, C, *size),
        torch.randn(2, kernel, kernel, C),
        (geometry.stride, geometry.padding),
    )
    numbers = (*numbers, geometry.dilation)

    def answers(operator, *arguments):
        with FakeTensorMode() as mode:
            told = operator(*(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in arguments))
        given = operator(*arguments)
        pairs = [(told, given)] if isinstance(given, torch.Tensor) else zip(told, given, strict=True)
        for fake, real in pairs:
            assert (fake.shape, fake.dtype, fake.stride()) == (real.shape, real.dtype, real.stride())
        return given

    y = answers(_depthwise, x, taps, torch.randn(2, C), *numbers)
    for needs_input in (True, False):
        answers(_depthwise_backward, torch.randn_like(y), x, taps, True, needs_input, *numbers)


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 600, 7)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shared", ["nothing", "input", "weights"])
def test_a_linear_layer_is_torchs_own_in_a_stack(shape, bias, shared):
    torch.manual_seed(0)
    x = torch.randn(*([] if shared == "input" else [4]), *shape, dtype=torch.float64)
    w = torch.randn(*([] if shared == "weights" else [4]), 5, 7, dtype=torch.float64)
    b = torch.randn(*([] if shared == "weights" else [4]), 5, dtype=torch.float64) if bias else None
    leaves = [each.requires_grad_() for each in (x, w, b) if each is not None]
    dims = (
        None if shared == "input" else 0,
        None if shared == "weights" else 0,
        0 if bias and shared != "weights" else None,
    )
    y = torch.func.vmap(linear, in_dims=tuple(dims))(x, w, b)
    reference = torch.func.vmap(F.linear, in_dims=tuple(dims))(x, w, b)
    torch.testing.assert_close(y, reference)
    g = torch.randn_like(reference)
    for got, right in zip(torch.autograd.grad(y, leaves, g), torch.autograd.grad(reference, leaves, g), strict=True):
        torch.testing.assert_close(got, right)


@pytest.mark.parametrize(
    ("length", "start", "C", "copied"), [(104, 4, 8, False), (104, 5, 8, True), (101, 4, 8, True), (101, 5, 7, False)]
)
def test_weights_of_a_large_product_begin_at_multiples_of_16_bytes(length, start, C, copied):
    """Where a copy does not help, because their rows are of odd length, they stay."""
    w = torch.randn(3, length)[:, start : start + 10 * C].unflatten(1, (10, C))
    found = aligned(w)
    assert torch.equal(found, w)
    assert (found.data_ptr() != w.data_ptr()) == copied
    assert not copied or all(place % 4 == 0 for place in (found.storage_offset(), *found.stride()[:2]))


def test_linear_layers_of_a_stack_are_computed_so():
    calls = []
    with pytest.MonkeyPatch.context() as patch, StackedCalls(torch.device("cpu")):
        patch.setattr("fedhv.engines.formulations.calls.linear", lambda *args: calls.append(args) or linear(*args))
        y = nn.Linear(3, 2)(torch.ones(4, 3))
    assert len(calls) == 1
    assert y.shape == (4, 2)


def test_a_pointwise_convolution_is_torchs_own():
    torch.manual_seed(0)
    x, w, b = torch.randn(3, 4, 6, 8, 16), torch.randn(3, 5, 6), torch.randn(3, 5)
    leaves = [each.requires_grad_() for each in (x, w, b)]
    y = torch.func.vmap(pointwise)(x, w, b)
    reference = torch.stack([F.conv2d(x[i], w[i][..., None, None], b[i]) for i in range(3)])
    torch.testing.assert_close(y, reference)
    g = torch.randn_like(reference)
    for got, right in zip(torch.autograd.grad(y, leaves, g), torch.autograd.grad(reference, leaves, g), strict=True):
        torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-5)
    (alone,) = torch.autograd.grad(Linear.apply(x[:, 0, :, 0].mT, w, None).sum(), w)
    assert alone.shape == w.shape


def test_parts_of_a_sum_are_equal():
    assert parts_of(32 * 1024, 10) == 64
    assert parts_of(512, 640) == 1
    assert all(pixels % parts_of(pixels, tiles) == 0 for pixels in (7, 320, 30_030) for tiles in (1, 10, 500))


class InPlace(nn.Module):
    """As torchvision writes it: activations and sums overwrite what is there."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(inplace=True))
        self.second = nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.GroupNorm(2, 8), nn.Hardswish(inplace=True)
        )
        self.third, self.norm = nn.Conv2d(8, 8, 1), nn.GroupNorm(2, 8)
        self.last = nn.ReLU(inplace=True)

    def forward(self, images):
        x = self.first(images)
        y = self.norm(self.third(self.second(x)))
        y += x
        return self.last(y).mean(dim=(2, 3))


def gradients(module, theta, images):
    names = [name for name, _ in module.named_parameters()]

    def loss(parameters, images):
        return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), (images,)).cos().sum()

    return torch.autograd.grad(torch.func.vmap(loss)(theta, images).sum(), theta)


@pytest.mark.parametrize("model", ["in place", "mobilenet"])
def test_a_model_with_stacked_kernels_has_its_own_gradients(model):
    torch.manual_seed(0)
    module = InPlace() if model == "in place" else ZOO["mobilenet"].encoder(TINY)
    replaced = with_mappable_layers(with_stacked_kernels(module))
    kinds = {type(layer) for layer in replaced.modules()}
    assert {Convolution, DepthwiseConvolution} <= kinds
    assert any(getattr(layer, "inplace", False) for layer in module.modules()) == (model == "in place"), "the original"
    theta = [torch.stack([p.detach(), 1.1 * p.detach()]).requires_grad_() for p in module.parameters()]
    images = torch.randn(2, 3, 3, 8, 8)
    own = [
        gradients(module, [t[i : i + 1].detach().requires_grad_() for t in theta], images[i : i + 1]) for i in range(2)
    ]
    for got, *right in zip(gradients(replaced, theta, images), *own, strict=True):
        torch.testing.assert_close(got, torch.cat(right), rtol=1e-3, atol=1e-4)


def test_depthwise_convolutions_map_with_shared_weights():
    x, w = torch.randn(3, 2, 4, 6, 6), torch.randn(4, 1, 3, 3)
    y = torch.func.vmap(lambda x: depthwise(x, w, None, Geometry(1, 1)))(x)
    torch.testing.assert_close(y, torch.stack([F.conv2d(each, w, None, 1, 1, groups=4) for each in x]))
