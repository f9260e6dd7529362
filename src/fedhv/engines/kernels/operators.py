"""The stacked convolution as torch operators: opaque to the compiler, differentiable, and known to `vmap`.

On a GPU they launch the Triton kernels; on a CPU they loop over the clients with torch's own convolution, which is
what the tests compare with. Weights come as `taps`, n × KH × KW × O × C, in the precision of the products. In a stack
they lie in this order already (see `weight_order`).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedhv.engines.kernels.geometry import Geometry
from fedhv.engines.kernels.mapping import alone, mapped
from fedhv.engines.kernels.wide import halved_like, is_wide, not_halved
from fedhv.engines.operator import operator


@operator("convolve")
def _convolve(
    x: Tensor, taps: Tensor, b: Tensor | None, stride: int, padding: int, pool: int, training: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    geometry = Geometry(stride, padding, pool)
    if x.device.type == "cuda":
        from fedhv.engines.kernels import launch

        y, which, images, weights, largest = launch.forward(x, taps, b, geometry, training)
        return y, which, images, weights, largest
    w = taps.permute(0, 3, 4, 1, 2)
    ys, found = [], []
    for i in range(len(x)):
        y = F.conv2d(x[i], w[i], None if b is None else b[i], stride, padding)
        if pool > 1:
            y, place = F.max_pool2d(y, pool, return_indices=True)
            width = (x.shape[-1] + 2 * padding - w.shape[-1]) // stride + 1
            code = (place // width % pool) * pool + place % width % pool
            found.append(torch.where(y > 0, code, 4).permute(0, 2, 3, 1).to(torch.uint8))
            y = y.relu()
        ys.append(y.permute(0, 2, 3, 1))
    which = torch.stack(found) if found and training else x.new_empty(0, dtype=torch.uint8)
    return torch.stack(ys).permute(0, 1, 4, 2, 3), which, *not_halved(x)


@_convolve.register_fake
def _(
    x: Tensor, taps: Tensor, b: Tensor | None, stride: int, padding: int, pool: int, training: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    rows, columns = Geometry(stride, padding, pool).output(*x.shape[3:], *taps.shape[1:3])
    y = torch.empty(*x.shape[:2], rows, columns, taps.shape[3], device=x.device, dtype=taps.dtype)
    which = torch.empty_like(y, dtype=torch.uint8) if pool > 1 and training else y.new_empty(0, dtype=torch.uint8)
    halves = x.device.type == "cuda" and training and is_wide(taps)
    return y.permute(0, 1, 4, 2, 3), which, *(halved_like(x, taps) if halves else not_halved(x))


@operator("convolve_backward")
def _convolve_backward(
    g: Tensor, which: Tensor, x: Tensor, taps: Tensor, largest: Tensor,
    bias: bool, needs_input: bool, stride: int, padding: int, pool: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    geometry = Geometry(stride, padding, pool)
    n, (H, W), (KH, KW) = len(x), x.shape[3:], taps.shape[1:3]
    if x.device.type == "cuda":
        from fedhv.engines.kernels import launch

        g = g.permute(0, 1, 3, 4, 2).contiguous()
        return launch.backward(g, which, x, taps, largest, bias, needs_input, geometry)
    w = taps.permute(0, 3, 4, 1, 2)
    parts = []
    for i in range(n):
        full = _unpool(g[i], which[i], geometry, (H, W), (KH, KW)) if pool > 1 else g[i].contiguous()
        parts.append(
            torch.ops.aten.convolution_backward(
                full, x[i], w[i], [w.shape[1]] if bias else None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1,
                [needs_input, True, bias],
            )
        )  # fmt: skip
    dx = (
        torch.stack([p[0].permute(0, 2, 3, 1) for p in parts]).permute(0, 1, 4, 2, 3) if needs_input else g.new_empty(0)
    )
    dtaps = torch.stack([p[1].permute(2, 3, 0, 1) for p in parts])
    db = torch.stack([p[2] for p in parts]) if bias else g.new_empty(n, 0)
    return dx, dtaps, db


@_convolve_backward.register_fake
def _(
    g: Tensor, which: Tensor, x: Tensor, taps: Tensor, largest: Tensor,
    bias: bool, needs_input: bool, stride: int, padding: int, pool: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    n, B, C, H, W = x.shape
    dx = g.new_empty(n, B, H, W, C).permute(0, 1, 4, 2, 3) if needs_input else g.new_empty(0)
    return (
        dx,
        taps.new_empty(taps.shape, dtype=torch.float32),
        taps.new_empty(n, taps.shape[3] if bias else 0, dtype=torch.float32),
    )


def _unpool(g: Tensor, which: Tensor, geometry: Geometry, size: tuple[int, int], kernel: tuple[int, int]) -> Tensor:
    """The gradient of what was pooled: g at the places that were largest, 0 elsewhere."""
    pool = geometry.pool
    places = torch.arange(4, device=g.device) == which.permute(0, 3, 1, 2)[..., None]
    windows = (places * g[..., None]).unflatten(-1, (pool, pool))  # B × O × PH × PW × 2 × 2
    full = windows.permute(0, 1, 2, 4, 3, 5).flatten(4, 5).flatten(2, 3)
    rows, columns = Geometry(geometry.stride, geometry.padding).output(*size, *kernel)
    return F.pad(full, (0, columns - full.shape[-1], 0, rows - full.shape[-2]))


class Convolve(torch.autograd.Function):
    """n clients' convolutions, differentiable; `vmap` adds its axis to the clients'.

    The gradient belongs to w, n × O × C × KH × KW in float32; `taps` are the same numbers as the kernels take them.
    """

    @staticmethod
    def forward(
        x: Tensor, w: Tensor, taps: Tensor, b: Tensor | None, geometry: Geometry, training: bool
    ) -> tuple[Tensor, ...]:
        """y; in training also which of its windows' places were largest, and scaled halves."""
        return _convolve(x, taps, b, geometry.stride, geometry.padding, geometry.pool, training)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Keep what the backward pass needs."""
        x, _, taps, b, ctx.geometry, _ = inputs
        _, which, images, weights, largest = output
        ctx.bias, ctx.dtype = b is not None, x.dtype
        ctx.mark_non_differentiable(which, images, weights, largest)
        ctx.set_materialize_grads(False)  # no zeros as gradients of these
        factors = (images, weights) if largest.numel() else (x, taps)
        ctx.save_for_backward(*factors, which, largest)

    @staticmethod
    def backward(ctx: Any, g: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of x (where it needs one), w and b."""
        x, taps, which, largest = ctx.saved_tensors
        geometry, needs_input = ctx.geometry, ctx.needs_input_grad[0]
        x = x.permute(0, 1, 4, 2, 3) if largest.numel() else x
        dx, dtaps, db = _convolve_backward(
            g, which, x, taps, largest, ctx.bias, needs_input, geometry.stride, geometry.padding, geometry.pool
        )
        dw = dtaps.permute(0, 3, 4, 1, 2)
        return dx.to(ctx.dtype) if needs_input else None, dw, None, db if ctx.bias else None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *arguments: Any
    ) -> tuple[tuple[Tensor, ...], tuple[int | None, ...]]:
        """The clients of all mapped calls in one; halves are not divided, since only the backward pass uses them."""
        (y, which, *rest), split = mapped(Convolve, info.batch_size, in_dims, *arguments)
        if not which.numel():
            return (y.unflatten(0, split), which, *rest), (0, *[None] * 4)
        return (y.unflatten(0, split), which.unflatten(0, split), *rest), (0, 0, *[None] * 3)


def convolve(x: Tensor, w: Tensor, b: Tensor | None, geometry: Geometry) -> Tensor:
    """One client's convolution of images B × C × H × W."""
    bf16 = x.device.type == "cuda" and torch.is_autocast_enabled("cuda")
    taps = w.detach().permute(2, 3, 0, 1).to(torch.bfloat16 if bf16 else torch.float32)
    y, *_ = Convolve.apply(
        x[None], w[None], taps[None], None if b is None else b[None], geometry, torch.is_grad_enabled()
    )
    return alone(y)
