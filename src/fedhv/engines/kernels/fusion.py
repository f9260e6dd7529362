"""A model whose convolutions are those of this package; parameters keep their names, so θ means the same."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedhv.engines.kernels.geometry import Geometry
from fedhv.engines.kernels.operators import convolve


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
    """GroupNorm, under `vmap` in plain operations: torch's own cannot be mapped over images laid out channels last."""

    def __init__(self, of: nn.GroupNorm) -> None:
        super().__init__()
        self.weight, self.bias = of.weight, of.bias
        self.groups, self.eps = of.num_groups, of.eps

    def forward(self, images: Tensor) -> Tensor:
        """Of one client's images, in float32."""
        if not torch._C._functorch.is_batchedtensor(images):
            normal: Tensor = F.group_norm(images, self.groups, self.weight, self.bias, self.eps)
            return normal
        grouped = images.float().unflatten(1, (self.groups, -1))
        variance, mean = torch.var_mean(grouped, dim=(2, 3, 4), keepdim=True, correction=0)
        normal = ((grouped - mean) * torch.rsqrt(variance + self.eps)).flatten(1, 2)
        if self.weight is not None:
            normal = normal * self.weight[:, None, None] + self.bias[:, None, None]
        return normal.to(images.dtype)


def with_stacked_convolutions(module: nn.Module) -> nn.Module:
    """A copy of a module with every convolution replaced that can be, and what follows it fused where it can be."""
    module = copy.deepcopy(module)
    for parent in list(module.modules()):
        names = list(parent._modules)
        for i, name in enumerate(names):
            layer = parent._modules[name]
            if type(layer) is nn.GroupNorm:
                parent._modules[name] = Normalisation(layer)
            if type(layer) is not nn.Conv2d or not _replaceable(layer):
                continue
            following = [parent._modules[n] for n in names[i + 1 : i + 3]] if type(parent) is nn.Sequential else []
            fused = _pools_and_rectifies(following)
            parent._modules[name] = Convolution(layer, pool=2 if fused else 1)
            if fused:  # what the kernel does already
                for n in names[i + 1 : i + 3]:
                    parent._modules[n] = nn.Identity()
    return module


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
