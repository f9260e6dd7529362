"""The stacked depthwise convolution as torch operators, like the full one's: Triton on a GPU, torch on a CPU."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedhv.engines.kernels.geometry import Geometry
from fedhv.engines.kernels.mapping import alone, mapped
from fedhv.engines.operator import operator


@operator("depthwise")
def _depthwise(x: Tensor, taps: Tensor, b: Tensor | None, stride: int, padding: int, dilation: int) -> Tensor:
    geometry = Geometry(stride, padding, dilation=dilation)
    if x.device.type == "cuda":
        from fedhv.engines.kernels import launch

        return launch.depthwise(x, taps, b, geometry)
    C, w = x.shape[2], taps.permute(0, 3, 1, 2)[:, :, None]
    ys = [
        F.conv2d(x[i], w[i].to(x.dtype), None if b is None else b[i].to(x.dtype), stride, padding, dilation, groups=C)
        for i in range(len(x))
    ]
    return torch.stack([y.permute(0, 2, 3, 1) for y in ys]).permute(0, 1, 4, 2, 3).to(taps.dtype)


@_depthwise.register_fake
def _(x: Tensor, taps: Tensor, b: Tensor | None, stride: int, padding: int, dilation: int) -> Tensor:
    rows, columns = Geometry(stride, padding, dilation=dilation).output(*x.shape[3:], *taps.shape[1:3])
    y = torch.empty(*x.shape[:2], rows, columns, x.shape[2], device=x.device, dtype=taps.dtype)
    return y.permute(0, 1, 4, 2, 3)


@operator("depthwise_backward")
def _depthwise_backward(
    g: Tensor, x: Tensor, taps: Tensor, bias: bool, needs_input: bool, stride: int, padding: int, dilation: int
) -> tuple[Tensor, Tensor, Tensor]:
    geometry = Geometry(stride, padding, dilation=dilation)
    if x.device.type == "cuda":
        from fedhv.engines.kernels import launch

        return launch.depthwise_backward(g, x, taps, bias, needs_input, geometry)
    C, w = x.shape[2], taps.permute(0, 3, 1, 2)[:, :, None].to(x.dtype)
    parts = [
        torch.ops.aten.convolution_backward(
            g[i].to(x.dtype).contiguous(), x[i], w[i], [C] if bias else None, [stride] * 2, [padding] * 2,
            [dilation] * 2, False, [0, 0], C, [needs_input, True, bias],
        )
        for i in range(len(x))
    ]  # fmt: skip
    dx = g.new_empty(0)
    if needs_input:
        dx = torch.stack([p[0].permute(0, 2, 3, 1) for p in parts]).permute(0, 1, 4, 2, 3).to(g.dtype)
    dtaps = torch.stack([p[1].squeeze(1).permute(1, 2, 0) for p in parts]).float()
    db = torch.stack([p[2] for p in parts]).float() if bias else g.new_empty(len(x), 0, dtype=torch.float32)
    return dx, dtaps, db


@_depthwise_backward.register_fake
def _(
    g: Tensor, x: Tensor, taps: Tensor, bias: bool, needs_input: bool, stride: int, padding: int, dilation: int
) -> tuple[Tensor, Tensor, Tensor]:
    n, B, C, H, W = x.shape
    dx = g.new_empty(n, B, H, W, C).permute(0, 1, 4, 2, 3) if needs_input else g.new_empty(0)
    dtaps = taps.new_empty(taps.shape, dtype=torch.float32)
    return dx, dtaps, taps.new_empty(n, C if bias else 0, dtype=torch.float32)


class Depthwise(torch.autograd.Function):
    """n clients' depthwise convolutions, differentiable; `vmap` adds its axis to the clients'.

    The gradient belongs to w, n × C × 1 × KH × KW in float32; `taps` are the same numbers as the kernels take them.
    """

    @staticmethod
    def forward(x: Tensor, w: Tensor, taps: Tensor, b: Tensor | None, geometry: Geometry) -> Tensor:
        """y."""
        y: Tensor = _depthwise(x, taps, b, geometry.stride, geometry.padding, geometry.dilation)
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what the backward pass needs."""
        x, _, taps, b, ctx.geometry = inputs
        ctx.bias = b is not None
        ctx.save_for_backward(x, taps)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of x (where it needs one), w and b."""
        x, taps = ctx.saved_tensors
        geometry, needs_input = ctx.geometry, ctx.needs_input_grad[0]
        dx, dtaps, db = _depthwise_backward(
            g, x, taps, ctx.bias, needs_input, geometry.stride, geometry.padding, geometry.dilation
        )
        dw = dtaps.permute(0, 3, 1, 2)[:, :, None]
        return dx.to(x.dtype) if needs_input else None, dw, None, db if ctx.bias else None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Tensor, int]:
        """The clients of all mapped calls in one."""
        y, split = mapped(Depthwise, info.batch_size, in_dims, *arguments)
        return y.unflatten(0, split), 0


def depthwise(x: Tensor, w: Tensor, b: Tensor | None, geometry: Geometry) -> Tensor:
    """One client's depthwise convolution of images B × C × H × W; w is C × 1 × KH × KW."""
    bf16 = x.device.type == "cuda" and torch.is_autocast_enabled("cuda")
    taps = w.detach().squeeze(1).permute(1, 2, 0).to(torch.bfloat16 if bf16 else torch.float32).contiguous()
    y = Depthwise.apply(x[None], w[None], taps[None], None if b is None else b[None], geometry)
    return alone(y)
