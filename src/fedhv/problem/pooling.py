"""Fast maximum pooling on a CPU: without gradients, positions of maxima are not needed and plain maxima are faster."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Halve(nn.MaxPool2d):
    """2x2 maximum pooling with torch's bits, up to five times faster without gradients."""

    def __init__(self) -> None:
        super().__init__(2)

    def forward(self, inputs: Tensor) -> Tensor:
        """Half the rows, half the columns."""
        rows, columns = (2 * (side // 2) for side in inputs.shape[-2:])
        if torch.is_grad_enabled() or not rows or not columns:
            pooled: Tensor = super().forward(inputs)
            return pooled
        taller = torch.maximum(inputs[..., :rows:2, :columns], inputs[..., 1:rows:2, :columns])
        return torch.maximum(taller[..., ::2], taller[..., 1::2])


def with_fast_pooling(module: nn.Module) -> nn.Module:
    """The module with its 2x2 poolings replaced by faster ones with the same results."""
    for parent in list(module.modules()):
        for name, layer in parent._modules.items():
            if layer is not None and type(layer) is nn.MaxPool2d and _halves(layer):
                parent._modules[name] = Halve().train(layer.training)
    return module


def _halves(layer: nn.MaxPool2d) -> bool:
    plain = layer.padding in (0, (0, 0)) and layer.dilation in (1, (1, 1)) and not layer.return_indices
    window = layer.kernel_size in (2, (2, 2)) and layer.stride in (2, (2, 2))
    return plain and window and not layer.ceil_mode and not hooked(layer)


def hooked(layer: nn.Module) -> bool:
    """Whether a layer has hooks; then it is not replaced."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(hooks)
