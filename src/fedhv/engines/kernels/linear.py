"""Linear layers and 1 × 1 convolutions of n clients as matrix products.

Torch's own rule for a stack of linear layers copies weights and their gradients into other orders. For a layer with
many weights these copies take longer than the products.

The gradient of the weights sums over all rows of a client. A library gives such a product to few processors, because
its result is small; here a long sum is divided into parts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedhv.engines.kernels.mapping import alone, mapped

PARTS, SHORTEST = 1056, 256
"""About how many tiles of 64 × 64 fill an H200 well, and the shortest sum that is worth a part."""

WORTH_COPYING = 256
"""The number of rows from which on a product is so large that its weights are copied to a better place in memory."""


class Linear(torch.autograd.Function):
    """y = x wᵀ + b for every client, differentiable: x is n × rows × C, w is n × O × C, b is n × O."""

    @staticmethod
    def forward(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        """y, n × rows × O."""
        w = _placed(w.to(x.dtype), x.shape[1]).mT
        return torch.bmm(x, w) if b is None else torch.baddbmm(b.to(x.dtype)[:, None], x, w)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep the factors."""
        x, w, b = inputs
        ctx.bias = None if b is None else b.dtype
        ctx.save_for_backward(x, w)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of x, w and b, where they need one."""
        x, w = ctx.saved_tensors
        needs_x, needs_w, needs_b = ctx.needs_input_grad
        dx = torch.bmm(g, _placed(w.to(g.dtype), g.shape[1])) if needs_x else None
        dw = _summed_products(g, x).to(w.dtype) if needs_w else None
        db = g.sum(dim=1, dtype=ctx.bias) if needs_b and ctx.bias is not None else None
        return dx, dw, db

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], x: Tensor, w: Tensor, b: Tensor | None) -> tuple[Tensor, int]:
        """The clients of all mapped calls in one; weights that all share multiply the rows of all."""
        if in_dims[0] is not None and in_dims[1] is None and (b is None or in_dims[2] is None):
            rows = x.movedim(in_dims[0], 1)
            y = Linear.apply(rows.flatten(1, 2), w, b)
            return y.unflatten(1, rows.shape[1:3]), 1
        y, split = mapped(Linear, info.batch_size, in_dims, x, w, b)
        return y.unflatten(0, split), 0


def _placed(w: Tensor, rows: int) -> Tensor:
    """Weights where a product with so many rows is fast."""
    return aligned(w) if w.device.type == "cuda" and rows >= WORTH_COPYING else w


def aligned(w: Tensor) -> Tensor:
    """Weights (n × O × C) whose rows begin at multiples of 16 bytes; copied if they do not and can.

    A GPU's library has much slower kernels for others. The parameters of a stack begin anywhere.
    """
    numbers = 16 // w.itemsize
    places = w.storage_offset(), *w.stride()[:2]
    if w.shape[2] % numbers or all(place % numbers == 0 for place in places):
        return w
    return w.clone(memory_format=torch.contiguous_format)


def _summed_products(g: Tensor, x: Tensor) -> Tensor:
    """gᵀx, n × O × C."""
    (n, rows, O), C = g.shape, x.shape[2]
    parts = parts_of(rows, n * -(-O // 64) * -(-C // 64))
    if parts == 1:
        return torch.bmm(g.mT, x)
    grads, inputs = (each.reshape(n * parts, rows // parts, -1) for each in (g, x))
    return (
        torch.bmm(grads.mT, inputs).view(n, parts, O, C).sum(dim=1, dtype=torch.promote_types(g.dtype, torch.float32))
    )


def parts_of(rows: int, tiles: int) -> int:
    """The number of equal parts of a sum over rows; `tiles` are the tiles of its result."""
    most = max(1, min(PARTS // tiles, rows // SHORTEST))
    return next(parts for parts in range(most, 0, -1) if rows % parts == 0)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """One client's linear layer, as `torch.nn.functional.linear`: input is … × C, weight is O × C."""
    device = input.device.type
    if torch.is_autocast_enabled(device):
        input = input.to(torch.get_autocast_dtype(device))
    rows = input.reshape(-1, input.shape[-1])
    y = alone(Linear.apply(rows[None], weight[None], None if bias is None else bias[None]))
    return y.view(*input.shape[:-1], len(weight))


def pointwise(images: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """One client's 1 × 1 convolution of images B × C × H × W; weight is O × C."""
    return linear(images.permute(0, 2, 3, 1), weight, bias).permute(0, 3, 1, 2)
