"""A network whose matrix products are computed in bfloat16, for engines that compute clients one after the other."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from fedhv.problem.network import Network, Theta
from fedhv.problem.trees import Inputs


class Bfloat16(Network):
    """The same network under autocast. Its outputs are float32, so that losses and scores are too."""

    def __init__(self, network: Network, device: torch.device) -> None:
        self.__dict__.update(network.__dict__)
        self._device = device.type
        self.module = _with_plain_recurrence(network.module, device.type)

    def __call__(
        self, theta: Theta, inputs: Inputs, *, training: bool, key: int | Tensor | None = None
    ) -> list[Tensor]:
        """The m outputs of the model with parameters θ."""
        # Views of θ are new tensors in every call; a cache of casts would keep them in memory.
        with torch.autocast(self._device, torch.bfloat16, cache_enabled=False):
            outputs = super().__call__(theta, inputs, training=training, key=key)
        return [output.float() for output in outputs]


def _with_plain_recurrence(module: nn.Module, device: str) -> nn.Module:
    """A copy whose recurrent layers ignore autocast; the module itself if there are none.

    On a GPU autocast computes them in float16 even if bfloat16 is requested, and small gradients become zero.
    """
    if not any(isinstance(layer, nn.RNNBase) for layer in module.modules()):
        return module
    module = copy.deepcopy(module)
    for layer in module.modules():
        if isinstance(layer, nn.RNNBase):
            layer.forward = _in_float32(layer, device)
    return module


def _in_float32(layer: nn.RNNBase, device: str) -> Any:
    forward = type(layer).forward

    def plain(*arguments: Any, **options: Any) -> Any:
        arguments, options = pytree.tree_map(_raised, (arguments, options))
        with torch.autocast(device, enabled=False):
            return forward(layer, *arguments, **options)

    return plain


def _raised(value: Any) -> Any:
    """bfloat16 outputs of an earlier layer as float32."""
    low = isinstance(value, Tensor) and value.dtype in (torch.bfloat16, torch.float16)
    return value.float() if low else value
