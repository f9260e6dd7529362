"""1 × 1 convolutions of n clients as matrix products, channels last.

The gradient of the weights sums over all pixels of a client. A library gives such a product to few processors, because
its result is small; here the sum is divided into parts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedhv.engines.kernels.mapping import alone, mapped

PARTS, SHORTEST = 1056, 256
"""About how many tiles of 64 × 64 fill an H200 well, and the shortest sum that is worth a part."""


class Pointwise(torch.autograd.Function):
    """y = x wᵀ for every client, differentiable: x is n × pixels × C, w is n × O × C."""

    @staticmethod
    def forward(x: Tensor, w: Tensor) -> Tensor:
        """y, n × pixels × O."""
        return torch.bmm(x, w.to(x.dtype).mT)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep the factors."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor]:
        """The gradients of x (where it needs one) and w."""
        x, w = ctx.saved_tensors
        dx = torch.bmm(g, w.to(g.dtype)) if ctx.needs_input_grad[0] else None
        n, pixels, O = g.shape
        C = x.shape[2]
        parts = parts_of(pixels, n * -(-O // 64) * -(-C // 64))
        factors = (each.reshape(n * parts, pixels // parts, -1) for each in (g, x))
        grads, inputs = factors
        dw = torch.bmm(grads.mT, inputs).view(n, parts, O, C).float()
        return dx, dw.sum(dim=1) if parts > 1 else dw.squeeze(1)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Tensor, int]:
        """The clients of all mapped calls in one."""
        y, split = mapped(Pointwise, info.batch_size, in_dims, *arguments)
        return y.unflatten(0, split), 0


def parts_of(pixels: int, tiles: int) -> int:
    """The number of equal parts of a sum over pixels; `tiles` are the tiles of its result."""
    most = max(1, min(PARTS // tiles, pixels // SHORTEST))
    return next(parts for parts in range(most, 0, -1) if pixels % parts == 0)


def pointwise(images: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """One client's 1 × 1 convolution of images B × C × H × W; weight is O × C."""
    B, C, H, W = images.shape
    rows = images.permute(0, 2, 3, 1).reshape(B * H * W, C)
    if images.device.type == "cuda" and torch.is_autocast_enabled("cuda"):
        rows, bias = rows.to(torch.bfloat16), None if bias is None else bias.to(torch.bfloat16)
    y = alone(Pointwise.apply(rows[None], weight[None]))
    y = y if bias is None else y + bias
    return y.view(B, H, W, len(weight)).permute(0, 3, 1, 2)
