"""Torch functions that a model calls inside a stack, replaced where torch's own fail or are slow there.

- Attention without a mask in bfloat16: torch's backward pass receives gradients of another type under `vmap`.
- Linear layers: torch copies their weights and gradients into other orders.
- Cross-entropy: torch's rule under `vmap` imports a library for symbolic mathematics, which takes seconds.
- The average of all places of an image: torch's rule loops over the clients.
- `torch.tensor(0.0, device="cuda")` copies a number from the host, which a CUDA graph cannot record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from fedhv.engines.formulations.images import mean_of_places
from fedhv.engines.kernels.linear import linear
from fedhv.problem.dropout import attention_weights, opened

_ATTENTION = opened(F.multi_head_attention_forward)
"""Calls `scaled_dot_product_attention`, which is intercepted only if this function is not."""


class StackedCalls(TorchFunctionMode):
    """A context in which a model's calls can be stacked and recorded."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device.type

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The result of `func`."""
        kwargs = kwargs or {}
        if func is F.multi_head_attention_forward:
            with self:
                return _ATTENTION(*args, **kwargs)
        if func is F.scaled_dot_product_attention and torch.is_autocast_enabled(self._device):
            return _attention(torch.get_autocast_dtype(self._device), *args, **kwargs)
        if func is F.linear:
            return linear(*args, **kwargs)
        if func is F.cross_entropy:
            return _cross_entropy(*args, **kwargs)
        if func is F.adaptive_avg_pool2d:
            return _pooled(*args, **kwargs)
        if func in (torch.tensor, torch.as_tensor) and self._device == "cuda":
            return _constant(func, *args, **kwargs)
        return func(*args, **kwargs)


def _attention(
    low: torch.dtype,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(QKᵀ / √E + mask) V, with products in low precision and the softmax in float32, cast explicitly.

    Dropout of the weights is drawn elsewhere, from a client's key (see `fedhv.problem.dropout`).
    """
    query, key, value = (each.to(low) for each in (query, key, value))
    weights, value = attention_weights(query, key, value, attn_mask, is_causal, scale, enable_gqa)
    return F.dropout(weights, dropout_p).to(low) @ value if dropout_p else weights.to(low) @ value


def _cross_entropy(
    outputs: Tensor,
    targets: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """−log softmax at the target's class for every example; other kinds of cross-entropy are left to torch."""
    plain = weight is None and size_average is None and reduce is None and reduction == "none" and not label_smoothing
    if not plain or outputs.dim() != 2 or targets.is_floating_point():
        return F.cross_entropy(outputs, targets, weight, size_average, ignore_index, reduce, reduction, label_smoothing)
    counts = targets != ignore_index
    found = F.log_softmax(outputs, dim=1).gather(1, targets.where(counts, 0)[:, None]).squeeze(1)
    return torch.where(counts, -found, 0.0)


def _pooled(input: Tensor, output_size: Any) -> Tensor:
    """Averages of parts of images; torch loops over the clients for the average of whole ones."""
    whole = output_size in (1, (1, 1), [1, 1])
    return mean_of_places(input) if whole else F.adaptive_avg_pool2d(input, output_size)


def _constant(func: Callable[..., Tensor], data: Any, *args: Any, **kwargs: Any) -> Tensor:
    """A number on a GPU is written there, not copied; everything else is made by torch."""
    device = kwargs.get("device")
    on_gpu = device is not None and torch.device(device).type == "cuda"
    if not on_gpu or args or not isinstance(data, bool | int | float):
        return func(data, *args, **kwargs)
    kind = kwargs.get("dtype") or torch.tensor(data).dtype
    made = torch.full((), data, dtype=kind, device=device)
    return made.requires_grad_() if kwargs.get("requires_grad") else made
