"""A model whose convolutions and normalisations are those of this package; parameters keep their names."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence

from torch import Tensor, nn

from fedhv.engines.kernels.geometry import Geometry
from fedhv.engines.kernels.group_norm import normalise
from fedhv.engines.kernels.operators import convolve
from fedhv.pooling import hooked


class Convolution(nn.Module):
    """A convolution, with the 2×2 maximum and ReLU behind it where `pool` is 2."""

    def __init__(self, of: nn.Conv2d, pool: int = 1) -> None:
        super().__init__()
        self.weight, self.bias = of.weight, of.bias
        (stride, _), (padding, _) = of.stride, _pair(of.padding)
        self.geometry = Geometry(stride, padding, pool)

    def forward(self, images: Tensor) -> Tensor:
        """Of one client's images."""
        return convolve(images, self.weight, self.bias, self.geometry)


class Normalisation(nn.Module):
    """GroupNorm, with the ReLU behind it where `relu` says so."""

    def __init__(self, of: nn.GroupNorm, relu: bool = False) -> None:
        super().__init__()
        self.weight, self.bias = of.weight, of.bias
        self.groups, self.eps, self.relu = of.num_groups, of.eps, relu

    def forward(self, images: Tensor) -> Tensor:
        """Of one client's images."""
        gamma = images.new_ones(images.shape[1]) if self.weight is None else self.weight
        beta = images.new_zeros(images.shape[1]) if self.bias is None else self.bias
        return normalise(images, gamma, beta, self.groups, self.eps, self.relu)


def with_stacked_kernels(module: nn.Module) -> nn.Module:
    """A copy of a module with every layer replaced that a kernel can do, and what follows it fused where it can be."""
    module = copy.deepcopy(module)
    for parent in list(module.modules()):
        names = list(parent._modules)
        for i, name in enumerate(names):
            layer = parent._modules[name]
            if not _free(layer):
                continue
            behind = names[i + 1 : i + 3] if type(parent) is nn.Sequential else []
            following = list(itertools.takewhile(_free, (parent._modules[n] for n in behind)))
            fused = 0  # so many of the layers that follow are done by the kernel already
            if type(layer) is nn.GroupNorm:
                fused = int([type(f) for f in following[:1]] == [nn.ReLU])
                parent._modules[name] = Normalisation(layer, relu=fused == 1)
            elif type(layer) is nn.Conv2d and _replaceable(layer):
                fused = 2 * _pools_and_rectifies(following)
                parent._modules[name] = Convolution(layer, pool=fused or 1)
            for n in behind[:fused]:
                parent._modules[n] = nn.Identity()
    return module


def _free(layer: nn.Module | None) -> bool:
    return layer is not None and not hooked(layer)


def _replaceable(layer: nn.Conv2d) -> bool:
    padding = _pair(layer.padding)
    return (
        layer.groups == 1
        and tuple(layer.dilation) == (1, 1)
        and layer.padding_mode == "zeros"
        and layer.stride[0] == layer.stride[1]
        and padding[0] == padding[1] >= 0
    )


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
