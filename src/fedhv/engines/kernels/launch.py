"""The Triton kernels with their tile sizes; every function takes and gives tensors with a leading axis of clients."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
from fedhv.engines.kernels.depthwise_kernels import depthwise_input_kernel, depthwise_kernel, depthwise_weight_kernel
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
    y = _output(n, B, PH, PW, O, device=x.device, dtype=taps.dtype)
    which = _output_like(y, dtype=torch.uint8) if geometry.pool > 1 else y.new_empty(0, dtype=torch.uint8)
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
    dx = _output(n, B, H, W, C, device=g.device, dtype=g.dtype)
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
    full = _output(n, B, 2 * PH, 2 * PW, O, device=g.device, dtype=g.dtype)
    positions, BO = n * B * PH * PW, min(64, _power(O))
    _start(
        unpool_kernel, (-(-positions // 32), -(-O // BO)),
        g, which, full, positions, O=O, PH=PH, PW=PW, BP=32, BO=BO, num_warps=4,
    )  # fmt: skip
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
    dw = _output(n, splits, KH, KW, O, C, device=g.device)
    db = _output(n, splits, O if bias else 0, device=g.device)
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
    y = _output_like(x)
    mean = _output(n, B, groups, device=x.device)
    scale = _output_like(mean)
    _start(
        normalise_kernel, (B * groups, n),
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
    dx = _output_like(x)
    dgamma, dbeta = _output(n, B, C, device=x.device), _output(n, B, C, device=x.device)
    _start(
        normalise_backward_kernel, (B * groups, n),
        g, x, gamma.contiguous(), beta.contiguous(), mean, scale, dx, dgamma, dbeta, B,
        C=C, POSITIONS=H * W, GROUPS=groups, RELU=relu, **_group_tiles(C // groups, H * W),
    )  # fmt: skip
    return dx.permute(0, 1, 4, 2, 3), dgamma.sum(dim=1), dbeta.sum(dim=1)


def depthwise(x: Tensor, taps: Tensor, b: Tensor | None, geometry: Geometry) -> Tensor:
    """y (n × B × C × OH × OW, channels last); `taps` is n × KH × KW × C in the precision of the output."""
    n, B, C, H, W = x.shape
    KH, KW = taps.shape[1:3]
    OH, OW = geometry.output(H, W, KH, KW)
    x = x.permute(0, 1, 3, 4, 2).contiguous()
    y = _output(n, B, OH, OW, C, device=x.device, dtype=taps.dtype)
    tiles = _channel_tiles(C)
    _start(
        depthwise_kernel, (-(-B * OH * OW // tiles["BP"]), n, -(-C // tiles["BC"])),
        x, taps.contiguous(), b.contiguous() if b is not None else x, y, B * OH * OW,
        C=C, H=H, W=W, OH=OH, OW=OW, KH=KH, KW=KW,
        STRIDE=geometry.stride, PADDING=geometry.padding, DILATION=geometry.dilation, BIAS=b is not None, **tiles,
    )  # fmt: skip
    return y.permute(0, 1, 4, 2, 3)


def depthwise_backward(
    g: Tensor, x: Tensor, taps: Tensor, bias: bool, needs_input: bool, geometry: Geometry
) -> tuple[Tensor, Tensor, Tensor]:
    """dx like x (empty where none is needed), dtaps like taps in float32, and db, n × C (empty without a bias)."""
    n, B, C, H, W = x.shape
    KH, KW = taps.shape[1:3]
    OH, OW = geometry.output(H, W, KH, KW)
    x, g, taps = x.permute(0, 1, 3, 4, 2).contiguous(), g.permute(0, 1, 3, 4, 2).contiguous(), taps.contiguous()
    shape = {"C": C, "H": H, "W": W, "OH": OH, "OW": OW, "KH": KH, "KW": KW}
    shape |= {"STRIDE": geometry.stride, "PADDING": geometry.padding, "DILATION": geometry.dilation}
    dx = g.new_empty(0)
    if needs_input:
        dx = _output(n, B, H, W, C, device=g.device, dtype=g.dtype)
        tiles = _channel_tiles(C)
        _start(
            depthwise_input_kernel, (-(-B * H * W // tiles["BP"]), n, -(-C // tiles["BC"])),
            g, taps, dx, B * H * W, **shape, **tiles,
        )  # fmt: skip
        dx = dx.permute(0, 1, 4, 2, 3)
    tiles, positions = _channel_tiles(C), B * OH * OW
    outputs = KH * KW * -(-C // tiles["BC"])
    splits = max(1, min(2 * PROGRAMS // (n * outputs), -(-positions // (8 * tiles["BP"]))))
    steps = -(-positions // (splits * tiles["BP"]))
    dw = _output(n, splits, KH, KW, C, device=g.device)
    db = _output(n, splits, C if bias else 0, device=g.device)
    _start(
        depthwise_weight_kernel,
        (splits, n, outputs),
        g,
        x,
        dw,
        db,
        positions,
        splits,
        steps,
        BIAS=bias,
        **shape,
        **tiles,
    )
    return dx, dw.sum(dim=1), db.sum(dim=1)


# --- starting and compiling kernels -----------------------------------------------------------------------------

_AHEAD: dict[Hashable, int] = {}
"""How many tiles kernels fetch ahead where fewer than wanted fit."""


def _launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, num_stages: int, **constants: Any) -> None:
    """Start a kernel that fetches tiles ahead: as many as wanted, or as fit into this GPU's shared memory.

    How much of it a kernel takes is known to its compiler alone.
    """
    key = _key(kernel, arguments, constants)
    for stages in range(_AHEAD.get(key, num_stages), 0, -1):
        try:
            _start(kernel, grid, *arguments, num_stages=stages, **constants)
            return
        except OutOfResources:
            _AHEAD[key] = max(1, stages - 1)
    raise FedHVError("This GPU has too little shared memory for the stacked kernels. Use --precision float32.")


def _key(kernel: Any, arguments: tuple[Any, ...], constants: dict[str, Any]) -> Hashable:
    types = tuple(a.dtype for a in arguments if isinstance(a, Tensor))
    return kernel, arguments[0].device, types, tuple(constants.items())


@dataclass(frozen=True)
class Planned:
    """A kernel that will be started, without the memory of its arguments.

    Attributes:
        kernel: The function.
        grid: The number of programs.
        arguments: Tensors are represented by their types.
        constants: Tile sizes and shapes.
        key: What `_AHEAD` knows it by.
        device: Where it will run.
    """

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: tuple[tuple[str, Any], ...]
    key: Hashable
    device: torch.device

    def compile(self) -> None:
        """Compile it for this device, with fewer tiles fetched ahead until it fits; the result is cached by Triton."""
        torch.cuda.set_device(self.device)
        room = getattr(torch.cuda.get_device_properties(self.device), "shared_memory_per_block_optin", 0) or 232_448
        constants = dict(self.constants)
        while True:
            made = self.kernel.warmup(*self.arguments, grid=self.grid, **constants)
            if made.metadata.shared <= room or constants.get("num_stages", 1) <= 1:
                return
            constants["num_stages"] -= 1
            _AHEAD[self.key] = constants["num_stages"]


_PLANNED: list[Planned] | None = None


@contextmanager
def planning() -> Iterator[list[Planned]]:
    """In this context kernels are listed instead of started, and their results are zeros."""
    global _PLANNED
    before, _PLANNED = _PLANNED, []
    try:
        yield _PLANNED
    finally:
        _PLANNED = before


def _start(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    if _PLANNED is None:
        kernel[grid](*arguments, **constants)
        return
    stages = {name: value for name, value in constants.items() if name != "num_stages"}
    types = tuple(a.dtype if isinstance(a, Tensor) else a for a in arguments)
    key = _key(kernel, arguments, stages)
    _PLANNED.append(Planned(kernel, grid, types, tuple(constants.items()), key, arguments[0].device))


def _output(*shape: int, **options: Any) -> Tensor:
    """Memory for the result of a kernel."""
    return torch.empty(*shape, **options) if _PLANNED is None else torch.zeros(*shape, **options)


def _output_like(like: Tensor, **options: Any) -> Tensor:
    return torch.empty_like(like, **options) if _PLANNED is None else torch.zeros_like(like, **options)


# --- tiles ------------------------------------------------------------------------------------------------------


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


def _channel_tiles(channels: int) -> dict[str, int]:
    """Positions and channels of a program of a depthwise convolution."""
    BC = min(64, _power(channels))
    return {"BP": 2048 // BC, "BC": BC, "num_warps": 4}


def _power(size: int) -> int:
    """The next power of two, at least the 16 of a matrix instruction."""
    return max(16, 1 << (size - 1).bit_length())
