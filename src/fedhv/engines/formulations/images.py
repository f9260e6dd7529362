"""Layers of convolutional networks for which torch's rules for `vmap` fail in bfloat16 or are slow."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fedhv.engines.formulations.mapped import is_mapped


def _cast(*tensors: Any) -> tuple[Any, ...]:
    """Tensors in the type of autocast; the bias of a convolution in a stack would stay in float32."""
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind) or not is_mapped(*tensors):
        return tensors
    low = torch.get_autocast_dtype(kind)
    return tuple(None if each is None else each.to(low) for each in tensors)


class Conv1d(nn.Conv1d):
    """`nn.Conv1d` with explicit casts in a stack under autocast."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        outputs: Tensor = super()._conv_forward(*_cast(input, weight, bias))
        return outputs


class Conv2d(nn.Conv2d):
    """`nn.Conv2d` with explicit casts in a stack under autocast."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        outputs: Tensor = super()._conv_forward(*_cast(input, weight, bias))
        return outputs


class Conv3d(nn.Conv3d):
    """`nn.Conv3d` with explicit casts in a stack under autocast."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        outputs: Tensor = super()._conv_forward(*_cast(input, weight, bias))
        return outputs


class AdaptiveAvgPool2d(nn.AdaptiveAvgPool2d):
    """The mean of all places; torch loops over the clients of a stack."""

    def forward(self, input: Tensor) -> Tensor:
        """One number for every channel."""
        return mean_of_places(input) if is_mapped(input) else super().forward(input)


def mean_of_places(images: Tensor) -> Tensor:
    """… × C × H × W to … × C × 1 × 1, with a gradient that lies in memory as the images do.

    The gradient of torch's mean lies in the order of the axes. Where images have their channels last, all earlier
    layers of a residual network would get gradients that their kernels have to copy.
    """
    if images.stride(-3) != 1:
        return images.mean(dim=(-2, -1), keepdim=True)
    return images.movedim(-3, -1).flatten(-3, -2).mean(dim=-2)[..., None, None]
