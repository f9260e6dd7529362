"""The Triton kernels with their tile sizes; every function takes and gives tensors with a leading axis of clients."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
import triton
from torch import Tensor
from triton.runtime.errors import OutOfResources

from fedhv.engines.kernels.convolution import (
    forward_kernel,
    input_gradient_kernel,
    unpool_kernel,
    weight_gradient_kernel,
)
from fedhv.engines.kernels.geometry import Geometry
from fedhv.engines.kernels.normalisation import normalise_backward_kernel, normalise_kernel
from fedhv.support.errors import FedHVError

FLAT_BYTES = 256
"""The largest size in bytes of taps and channels that form one axis of the product; its tiles must fit small GPUs."""

PROGRAMS = 1056
"""The approximate number of programs of a weight gradient: eight for each of an H200's multiprocessors."""


def forward(x: Tensor, taps: Tensor, b: Tensor | None, geometry: Geometry) -> tuple[Tensor, Tensor]:
    """y (n × B × O × PH × PW, channels last) and which of its windows' places were largest.

    The weights' precision is that of the products: `taps` is n × KH × KW × O × C in float32 (for tf32) or bfloat16.
    """
    n, B, C, H, W = x.shape
    _, KH, KW, O, _ = taps.shape
    PH, PW = geometry.output(H, W, KH, KW)
    y = torch.empty(n, B, PH, PW, O, device=x.device, dtype=taps.dtype)
    which = torch.empty_like(y, dtype=torch.uint8) if geometry.pool > 1 else y.new_empty(0, dtype=torch.uint8)
    flat = is_flat(taps)
    rows = B * PH * PW * geometry.pool**2
    tiles = _tiles(O, C, taps.dtype)
    if flat:
        tiles |= {"BK": _power(C * KH * KW)}
    _launch(
        forward_kernel, (-(-rows // tiles["BM"]), n, -(-O // tiles["BN"])),
        x, taps.contiguous(), b.contiguous() if b is not None else x, y, which, *x.stride(), B * PH * PW,
        C=C, H=H, W=W, O=O, PH=PH, PW=PW, KH=KH, KW=KW,
        STRIDE=geometry.stride, PADDING=geometry.padding, POOL=geometry.pool, BIAS=b is not None, FLAT=flat, **tiles,
    )  # fmt: skip
    return y.permute(0, 1, 4, 2, 3), which


def is_flat(taps: Tensor) -> bool:
    """Whether channels and taps are one axis of the product: where there are few."""
    _, KH, KW, _, C = taps.shape
    return C * KH * KW * taps.dtype.itemsize <= FLAT_BYTES


def input_gradient(g: Tensor, which: Tensor, taps: Tensor, size: tuple[int, int], geometry: Geometry) -> Tensor:
    """dx, n × B × C × H × W, channels last; g is n × B × PH × PW × O, contiguous."""
    n, B, _, _, O = g.shape
    _, KH, KW, _, C = taps.shape
    H, W = size
    dx = torch.empty(n, B, H, W, C, device=g.device, dtype=g.dtype)
    if geometry.pool > 1:
        g = _unpool(g, which)
    OH, OW = g.shape[2:4]
    # Tensor cores take a factor that lies across the sum from memory in two bytes only.
    taps = taps.contiguous() if taps.dtype == torch.bfloat16 else taps.mT.contiguous().mT
    stride = geometry.stride
    rows = B * -(-H // stride) * -(-W // stride)
    tiles = _tiles(C, O, taps.dtype)
    _launch(
        input_gradient_kernel, (-(-rows // tiles["BM"]) * stride**2, n, -(-C // tiles["BN"])),
        g, taps, dx, *taps.stride()[-2:], B,
        C=C, H=H, W=W, O=O, OH=OH, OW=OW, KH=KH, KW=KW, STRIDE=stride, PADDING=geometry.padding, **tiles,
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
    g: Tensor, which: Tensor, x: Tensor, kernel: tuple[int, int], bias: bool, geometry: Geometry, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """dtaps, n × KH × KW × O × C, and db, n × O (empty without a bias); g is n × B × PH × PW × O, contiguous."""
    n, B, PH, PW, O = g.shape
    C, H, W = x.shape[2:]
    KH, KW = kernel
    J, positions, bf16 = KH * KW * C, B * PH * PW, dtype == torch.bfloat16
    # Few columns are no work for tensor cores either way; there tf32 is the faster.
    mode = "tf32" if J <= 32 else "bf16" if bf16 else "bf16x3"
    tiles = _sum_tiles(O, J, bf16)
    outputs = -(-O // tiles["BO"]) * -(-J // tiles["BN"])
    splits = max(1, min(PROGRAMS // (n * outputs), -(-positions // (8 * tiles["BP"]))))
    steps = -(-positions // (splits * tiles["BP"]))
    dw = torch.empty(n, splits, KH, KW, O, C, device=g.device)
    db = torch.empty(n, splits, O if bias else 0, device=g.device)
    _launch(
        weight_gradient_kernel, (splits, n, outputs),
        g, which, x, dw, db, *x.stride(), positions, splits, steps,
        C=C, H=H, W=W, O=O, PH=PH, PW=PW, KH=KH, KW=KW,
        STRIDE=geometry.stride, PADDING=geometry.padding, POOL=geometry.pool,
        BIAS=bias, MODE=mode, **tiles,
    )  # fmt: skip
    return (dw.squeeze(1), db.squeeze(1)) if splits == 1 else (dw.sum(dim=1), db.sum(dim=1))


def normalise(
    x: Tensor, gamma: Tensor, beta: Tensor, groups: int, eps: float, relu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """y, like x of n × B × C × H × W channels last, and the mean and 1/√variance of every group, n × B × groups."""
    n, B, C, H, W = x.shape
    x = x.permute(0, 1, 3, 4, 2).contiguous()
    y = torch.empty_like(x)
    mean = torch.empty(n, B, groups, device=x.device)
    scale = torch.empty_like(mean)
    normalise_kernel[(B * groups, n)](
        x, gamma.contiguous(), beta.contiguous(), y, mean, scale, B, eps,
        C=C, POSITIONS=H * W, GROUPS=groups, RELU=relu, **_group_tiles(C // groups, H * W),
    )  # fmt: skip
    return y.permute(0, 1, 4, 2, 3), mean, scale


def normalise_backward(
    g: Tensor, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, scale: Tensor, relu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """dx like x, dγ and dβ (n × C)."""
    n, B, C, H, W = x.shape
    groups = mean.shape[-1]
    x, g = x.permute(0, 1, 3, 4, 2).contiguous(), g.permute(0, 1, 3, 4, 2).contiguous()
    dx = torch.empty_like(x)
    dgamma, dbeta = torch.empty(n, B, C, device=x.device), torch.empty(n, B, C, device=x.device)
    normalise_backward_kernel[(B * groups, n)](
        g, x, gamma.contiguous(), beta.contiguous(), mean, scale, dx, dgamma, dbeta, B,
        C=C, POSITIONS=H * W, GROUPS=groups, RELU=relu, **_group_tiles(C // groups, H * W),
    )  # fmt: skip
    return dx.permute(0, 1, 4, 2, 3), dgamma.sum(dim=1), dbeta.sum(dim=1)


_AHEAD: dict[Hashable, int] = {}
"""How many tiles kernels fetch ahead where fewer than wanted fit."""


def _launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, num_stages: int, **constants: Any) -> None:
    """Start a kernel that fetches tiles ahead: as many as wanted, or as fit into this GPU's shared memory.

    How much of it a kernel takes is known to its compiler alone.
    """
    types = tuple(a.dtype for a in arguments if isinstance(a, Tensor))
    key = (kernel, arguments[0].device, types, tuple(constants.items()))
    for stages in range(_AHEAD.get(key, num_stages), 0, -1):
        try:
            kernel[grid](*arguments, num_stages=stages, **constants)
            return
        except OutOfResources:
            _AHEAD[key] = max(1, stages - 1)
    raise FedHVError("This GPU has too little shared memory for the stacked kernels. Use --precision float32.")


def _tiles(columns: int, depth: int, dtype: torch.dtype) -> dict[str, int]:
    """Rows, columns and depth of the tiles of a product with these columns and this depth."""
    bf16 = dtype == torch.bfloat16
    BM, BN, BK = 128, min(256 if bf16 else 128, _power(columns)), min(64 if bf16 else 32, _power(depth))
    return {"BM": BM, "BN": BN, "BK": BK, "num_warps": 8 if columns > 64 else 4, "num_stages": 3}


def _sum_tiles(outputs: int, columns: int, bf16: bool) -> dict[str, int]:
    """The same for a sum over positions."""
    BO, BN = min(128 if bf16 else 64, _power(outputs)), min(128, _power(columns))
    BP = 64 if columns <= 32 or bf16 else 32
    return {"BO": BO, "BN": BN, "BP": BP, "num_warps": 4, "num_stages": 3 if bf16 else 2}


def _group_tiles(channels: int, positions: int) -> dict[str, int]:
    """Positions and channels that a program of the normalisation holds at once."""
    BC = triton.next_power_of_2(channels)
    large = positions >= 1024
    BP = min(triton.next_power_of_2(positions), max(1, (8192 if large else 4096) // BC))
    return {"BP": BP, "BC": BC, "num_warps": 16 if large else 8 if positions >= 256 else 4}


def _power(size: int) -> int:
    """The next power of two, at least the 16 of a matrix instruction."""
    return max(16, 1 << (size - 1).bit_length())
