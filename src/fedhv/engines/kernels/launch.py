"""The Triton kernels with their tile sizes; every function takes and gives tensors with a leading axis of clients."""

from __future__ import annotations

import torch
from torch import Tensor

from fedhv.engines.kernels.convolution import (
    forward_kernel,
    input_gradient_kernel,
    unpool_kernel,
    weight_gradient_kernel,
)
from fedhv.engines.kernels.geometry import Geometry

FLAT = 128
"""Up to so many taps times channels are one axis of the product."""

PROGRAMS = 1056
"""A weight gradient is divided among about so many programs: eight for each of an H200's multiprocessors."""


def forward(x: Tensor, w: Tensor, b: Tensor | None, geometry: Geometry, bf16: bool) -> tuple[Tensor, Tensor]:
    """y (n × B × O × PH × PW, channels last) and which of its windows' places were largest."""
    n, B, C, H, W = x.shape
    _, O, _, KH, KW = w.shape
    PH, PW = geometry.output(H, W, KH, KW)
    dtype = torch.bfloat16 if bf16 else torch.float32
    y = torch.empty(n, B, PH, PW, O, device=x.device, dtype=dtype)
    which = torch.empty_like(y, dtype=torch.uint8) if geometry.pool > 1 else y.new_empty(0, dtype=torch.uint8)
    flat = C * KH * KW <= FLAT
    taps = w.contiguous() if flat else w.permute(0, 3, 4, 1, 2).contiguous()
    tiles = _tiles(O, C, bf16)
    if flat:
        tiles |= {"BK": _power(C * KH * KW)}
    rows = B * PH * PW * geometry.pool**2
    forward_kernel[(-(-rows // tiles["BM"]), n, -(-O // tiles["BN"]))](
        x, taps, b.contiguous() if b is not None else x, y, which, *x.stride(), B * PH * PW,
        C=C, H=H, W=W, O=O, PH=PH, PW=PW, KH=KH, KW=KW,
        STRIDE=geometry.stride, PADDING=geometry.padding, POOL=geometry.pool,
        BIAS=b is not None, FLAT=flat, BF16=bf16, **tiles,
    )  # fmt: skip
    return y.permute(0, 1, 4, 2, 3), which


def input_gradient(
    g: Tensor, which: Tensor, w: Tensor, size: tuple[int, int], geometry: Geometry, bf16: bool
) -> Tensor:
    """dx, n × B × C × H × W, channels last; g is n × B × PH × PW × O, contiguous."""
    n, B, _, _, O = g.shape
    _, _, C, KH, KW = w.shape
    H, W = size
    dx = torch.empty(n, B, H, W, C, device=g.device, dtype=g.dtype)
    tiles = _tiles(C, O, bf16)
    if geometry.pool > 1:
        g = _unpool(g, which)
    OH, OW = g.shape[2:4]
    input_gradient_kernel[(-(-B * H * W // tiles["BM"]), n, -(-C // tiles["BN"]))](
        g, w.permute(0, 3, 4, 2, 1).contiguous(), dx, B * H * W, B,
        C=C, H=H, W=W, O=O, OH=OH, OW=OW, KH=KH, KW=KW,
        STRIDE=geometry.stride, PADDING=geometry.padding, BF16=bf16, **tiles,
    )  # fmt: skip
    return dx.permute(0, 1, 4, 2, 3)


def _unpool(g: Tensor, which: Tensor) -> Tensor:
    """The gradient before pooling; written out, since the kernel reads every entry once for each tap."""
    n, B, PH, PW, O = g.shape
    full = torch.empty(n, B, 2 * PH, 2 * PW, O, device=g.device, dtype=g.dtype)
    positions, BO = n * B * PH * PW, min(64, _power(O))
    unpool_kernel[(-(-positions // 32), -(-O // BO))](
        g, which, full, positions, O=O, PH=PH, PW=PW, BP=32, BO=BO, num_warps=4
    )
    return full


def weight_gradient(
    g: Tensor, which: Tensor, x: Tensor, kernel: tuple[int, int], bias: bool, geometry: Geometry, bf16: bool
) -> tuple[Tensor, Tensor]:
    """dw, n × O × C × KH × KW, and db, n × O (empty without a bias); g is n × B × PH × PW × O, contiguous."""
    n, B, PH, PW, O = g.shape
    C, H, W = x.shape[2:]
    KH, KW = kernel
    J, positions = KH * KW * C, B * PH * PW
    # Few columns are no work for tensor cores either way; there tf32 is the faster.
    mode = "tf32" if J <= 32 else "bf16" if bf16 else "bf16x3"
    tiles = _sum_tiles(O, J, bf16)
    outputs = -(-O // tiles["BO"]) * -(-J // tiles["BN"])
    splits = max(1, min(PROGRAMS // (n * outputs), -(-positions // (8 * tiles["BP"]))))
    steps = -(-positions // (splits * tiles["BP"]))
    dw = torch.empty(n, splits, O, J, device=g.device)
    db = torch.empty(n, splits, O if bias else 0, device=g.device)
    weight_gradient_kernel[(splits, n, outputs)](
        g, which, x, dw, db, *x.stride(), positions, splits, steps,
        C=C, H=H, W=W, O=O, PH=PH, PW=PW, KH=KH, KW=KW,
        STRIDE=geometry.stride, PADDING=geometry.padding, POOL=geometry.pool,
        BIAS=bias, MODE=mode, **tiles,
    )  # fmt: skip
    return dw.sum(dim=1).view(n, O, KH, KW, C).permute(0, 1, 4, 2, 3).contiguous(), db.sum(dim=1)


def _tiles(columns: int, depth: int, bf16: bool) -> dict[str, int]:
    """Rows, columns and depth of the tiles of a product with so many columns and so deep."""
    wide = columns > 64
    return {
        "BM": 128, "BN": min(128, _power(columns)), "BK": min(64 if bf16 else 32, _power(depth)),
        "num_warps": 8 if wide else 4, "num_stages": 3,
    }  # fmt: skip


def _sum_tiles(outputs: int, columns: int, bf16: bool) -> dict[str, int]:
    """The same for a sum over positions."""
    return {
        "BO": min(64, _power(outputs)), "BN": min(128, _power(columns)), "BP": 64 if columns <= 32 else 32,
        "num_warps": 4, "num_stages": 2,
    }  # fmt: skip


def _power(size: int) -> int:
    """The next power of two, at least the 16 of a matrix instruction."""
    return max(16, 1 << (size - 1).bit_length())
