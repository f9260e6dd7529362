"""A model whose convolutions and normalisations are those of this package.

Layers stay what they are, with their names, parameters and attributes, and compute the same; only a `Sequential` as a
whole does several of its layers in one kernel. Whoever takes its layers one by one gets what each of them gives.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Sequence

from torch import Tensor, nn

from fedhv.engines.kernels.activations import NONE, activation_of
from fedhv.engines.kernels.depthwise import depthwise
from fedhv.engines.kernels.geometry import Geometry
from fedhv.engines.kernels.group_norm import normalise
from fedhv.engines.kernels.linear import pointwise
from fedhv.engines.kernels.operators import convolve
from fedhv.problem.pooling import hooked


class Convolution(nn.Conv2d):
    """A convolution of one client's images."""

    def forward(self, images: Tensor) -> Tensor:
        """The convolution alone."""
        return self._convolve(images, pool=1)

    def fused(self, images: Tensor) -> Tensor:
        """With the 2×2 maximum and ReLU behind it."""
        return self._convolve(images, pool=2)

    def _convolve(self, images: Tensor, pool: int) -> Tensor:
        (stride, _), (padding, _) = self.stride, _pair(self.padding)
        if (stride, padding, pool) == (1, 0, 1) and tuple(self.kernel_size) == (1, 1):
            return pointwise(images, self.weight.flatten(1), self.bias)
        return convolve(images, self.weight, self.bias, Geometry(stride, padding, pool))


class DepthwiseConvolution(nn.Conv2d):
    """A convolution of one client's images in which every channel has taps of its own."""

    def forward(self, images: Tensor) -> Tensor:
        """The convolution."""
        (stride, _), (padding, _), (dilation, _) = self.stride, _pair(self.padding), self.dilation
        return depthwise(images, self.weight, self.bias, Geometry(stride, padding, dilation=dilation))


class Normalisation(nn.GroupNorm):
    """GroupNorm of one client's images."""

    def forward(self, images: Tensor) -> Tensor:
        """The normalisation alone."""
        return self.fused(images, NONE)

    def fused(self, images: Tensor, activation: str) -> Tensor:
        """With the activation behind it."""
        gamma = images.new_ones(images.shape[1]) if self.weight is None else self.weight
        beta = images.new_zeros(images.shape[1]) if self.bias is None else self.bias
        return normalise(images, gamma, beta, self.num_groups, self.eps, activation)


class Chain(nn.Sequential):
    """A `Sequential` that computes several layers at once where it can."""

    def forward(self, images: Tensor) -> Tensor:
        """All layers."""
        layers = list(self)
        while layers:
            step, count = _first_step(layers)
            images, layers = step(images), layers[count:]
        return images


def with_stacked_kernels(module: nn.Module) -> nn.Module:
    """A copy of a module with every layer replaced that a kernel can do."""
    module = copy.deepcopy(module)
    for layer in module.modules():
        if isinstance(layer, nn.Sequential) and type(layer).forward is nn.Sequential.forward:
            layer.__class__ = _chain(type(layer))
        elif type(layer) is nn.GroupNorm and not hooked(layer):
            layer.__class__ = Normalisation
        elif type(layer) is nn.Conv2d and not hooked(layer):
            layer.__class__ = _kind(layer)
        if getattr(layer, "inplace", False) is True:  # outputs of a kernel are views, which torch does not overwrite
            setattr(layer, "inplace", False)  # noqa: B010  # typed as a parameter or module
    return module


def weight_axes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """The axes of a convolution's weights (O, C, KH, KW) in the order in which its kernel reads them, by name."""
    kinds = Convolution, DepthwiseConvolution
    names = {name for name, layer in module.named_modules() if isinstance(layer, kinds) and max(layer.kernel_size) > 1}
    return {f"{name}.weight" if name else "weight": (2, 3, 0, 1) for name in names}


def _first_step(layers: Sequence[nn.Module]) -> tuple[Callable[[Tensor], Tensor], int]:
    """The first step, and the number of layers that it covers; a layer with hooks is computed alone."""
    match list(itertools.takewhile(lambda layer: not hooked(layer), layers[:3])):
        case [Normalisation() as norm, following, *_] if activation := activation_of(following):
            return functools.partial(norm.fused, activation=activation), 2
        case [Convolution() as convolution, *following] if _pools_and_rectifies(following):
            return convolution.fused, 3
    return layers[0], 1


def _chain(kind: type[nn.Sequential]) -> type[nn.Sequential]:
    """A `Sequential`, or a class of it that does not compute anything else, as a chain."""
    return Chain if kind is nn.Sequential else type(kind.__name__, (Chain, kind), {})


def _kind(layer: nn.Conv2d) -> type[nn.Conv2d]:
    """The class that computes a convolution by a kernel of this package; its own class if none does."""
    padding = _pair(layer.padding)
    square = layer.stride[0] == layer.stride[1] and padding[0] == padding[1] >= 0 and layer.padding_mode == "zeros"
    if square and layer.groups == 1 and tuple(layer.dilation) == (1, 1):
        return Convolution
    own_taps = layer.groups == layer.in_channels == layer.out_channels > 1
    if square and own_taps and layer.dilation[0] == layer.dilation[1]:
        return DepthwiseConvolution
    return nn.Conv2d


def _pair(padding: object) -> tuple[int, int]:
    """Padding as two numbers; -1 where it is a word."""
    if isinstance(padding, str):
        return (0, 0) if padding == "valid" else (-1, -1)
    assert isinstance(padding, tuple)
    return int(padding[0]), int(padding[1])


def _pools_and_rectifies(following: Sequence[nn.Module | None]) -> bool:
    """Maximum of 2×2 windows and ReLU, in either order: they commute."""
    kinds = {type(layer): layer for layer in following}
    pool = kinds.get(nn.MaxPool2d)
    if set(kinds) != {nn.MaxPool2d, nn.ReLU} or not isinstance(pool, nn.MaxPool2d):
        return False
    window = pool.kernel_size in (2, (2, 2)) and pool.stride in (2, (2, 2)) and pool.padding in (0, (0, 0))
    return window and pool.dilation in (1, (1, 1)) and not pool.ceil_mode and not pool.return_indices
