"""The activations that are computed with the normalisation before them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Activation:
    """An activation as torch computes it, for a CPU; `activation_kernels` has the same for a GPU, by name."""

    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor], Tensor]
    """The gradient of its input from that of its output, and its input."""


NONE = "none"

ACTIVATIONS = {
    NONE: Activation(lambda a: a, lambda g, a: g),
    "relu": Activation(torch.relu, lambda g, a: torch.ops.aten.threshold_backward(g, a, 0)),
    "relu6": Activation(F.relu6, lambda g, a: torch.ops.aten.hardtanh_backward(g, a, 0, 6)),
    "hardswish": Activation(F.hardswish, torch.ops.aten.hardswish_backward),
    "silu": Activation(F.silu, torch.ops.aten.silu_backward),
}

_LAYERS: dict[type[nn.Module], str] = {
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.Hardswish: "hardswish",
    nn.SiLU: "silu",
}


def activation_of(layer: nn.Module) -> str | None:
    """The name of the activation that a layer is; None if it is another layer."""
    return _LAYERS.get(type(layer))
