"""The Triton kernels with their tile sizes; every function takes and gives tensors with a leading axis of clients."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from fedhv.engines.kernels.convolution import forward_kernel, input_gradient_kernel, unpool_kernel
from fedhv.engines.kernels.depthwise_kernels import depthwise_input_kernel, depthwise_kernel, depthwise_weight_kernel
from fedhv.engines.kernels.geometry import Geometry
from fedhv.engines.kernels.halves import halve_kernel, largest_kernel
from fedhv.engines.kernels.normalisation import normalise_backward_kernel, normalise_kernel
from fedhv.engines.kernels.starting import launch, output, output_like, start
from fedhv.engines.kernels.sums import sum_kernel
from fedhv.engines.kernels.weight_gradients import column_gradient_kernel, tap_gradient_kernel
from fedhv.engines.kernels.wide import is_wide, no_largest, not_halved

FLAT_BYTES = 256
"""The largest size in bytes of taps and channels that form one axis of the product; its tiles must fit small GPUs."""

FEW_CHANNELS = 8
"""Inputs of fewer channels have taps and channels in one axis."""

BLOCK = 4096
"""The numbers that a program scales."""

BLOCKS = 4
"""How many times as many a program searches for the largest: programs that end with an atomic operation are few."""

IN_REGISTERS = 16384
"""The largest group that a program of the normalisation keeps."""

PROGRAMS = 1056
"""The approximate number of programs of a weight gradient: eight for each of an H200's multiprocessors."""

MOST_IN_A_SPLIT = 2**30
"""The approximate number of gradients that a program of a sum over positions reads: it counts them in 32 bits."""


def forward(x: Tensor, taps: Tensor, b: Tensor | None, geometry: Geometry, training: bool) -> tuple[Tensor, ...]:
    """y (n × B × O × PH × PW, channels last); in training also which of its windows' places were largest, and halves.

    The weights' precision is that of the products: `taps` is n × KH × KW × O × C in float32 (for tf32) or bfloat16. In
    training, factors of wide layers become scaled halves, as the backward pass takes them (see `wide`).
    """
    n, B, C, H, W = x.shape
    _, KH, KW, O, _ = taps.shape
    PH, PW = geometry.output(H, W, KH, KW)
    y = output(n, B, PH, PW, O, device=x.device, dtype=taps.dtype)
    places, halves = training and geometry.pool > 1, training and is_wide(taps)
    which = output_like(y, dtype=torch.uint8) if places else y.new_empty(0, dtype=torch.uint8)
    made = not_halved(x)
    if halves:
        largest = no_largest(n, x.device)
        made = _halved(_channels_last(x).float(), largest[0]), _halved(taps, largest[1]), largest
        x, taps = made[0].permute(0, 1, 4, 2, 3), made[1]
    flat = is_flat(taps)
    tiles = _tiles(O, C, taps.dtype, geometry.pool)
    if flat:
        tiles |= {"BK": _power(C * KH * KW), "num_warps": 4}
    bias = x if b is None else _rows(b)
    launch(
        forward_kernel, (-(-B * PH * PW // tiles["BM"]), n, -(-O // tiles["BN"])),
        x, taps.contiguous(), bias, y, which, *(made[2] if halves else (y, y)), *x.stride(), bias.stride(0),
        B * PH * PW,
        C=C, H=H, W=W, O=O, PH=PH, PW=PW, KH=KH, KW=KW, STRIDE=geometry.stride, PADDING=geometry.padding,
        POOL=geometry.pool, BIAS=b is not None, PLACES=places, FLAT=flat, HALVES=halves, **tiles,
    )  # fmt: skip
    return y.permute(0, 1, 4, 2, 3), which, *made


def is_flat(taps: Tensor) -> bool:
    """Whether channels and taps are one axis of the product: where there are few."""
    _, KH, KW, _, C = taps.shape
    return C * KH * KW * taps.dtype.itemsize <= FLAT_BYTES


def backward(
    g: Tensor, which: Tensor, x: Tensor, taps: Tensor, largest: Tensor,
    bias: bool, needs_input: bool, geometry: Geometry,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dx like x in the type of g (empty where none is needed), dtaps like taps in float32, and db, n × O or empty.

    g is n × B × PH × PW × O, contiguous. x and taps are scaled halves if `largest` (two rows) is not empty.
    """
    C, (H, W), (KH, KW) = x.shape[2], x.shape[3:], taps.shape[1:3]
    few, halves = C < FEW_CHANNELS, largest.numel() > 0
    bits_x, bits_taps = largest if halves else (None, None)
    dx = g.new_empty(0)
    if needs_input or not few:
        full = _factor(g, halves, which if geometry.pool > 1 else None)
        if needs_input:
            dx = input_gradient(full, (taps, bits_taps), (H, W), geometry, g.dtype)
    if few:
        return dx, *_column_gradient(g, which, x, (KH, KW), bias, geometry, taps.dtype)
    images = _channels_last(x) if halves else _channels_last(x.to(g.dtype))
    return dx, *weight_gradient(full, (images, bits_x), (KH, KW), bias, geometry)


Factor = tuple[Tensor, Tensor | None]
"""A factor of products; scaled halves come with the bits of every client's largest absolute value."""


def _factor(values: Tensor, halves: bool, which: Tensor | None = None) -> Factor:
    """The gradient before pooling, if it was pooled, or values as they are; as scaled halves, if wanted."""
    n, largest = len(values), None
    if halves:
        largest = torch.zeros(n, dtype=torch.int32, device=values.device)
    if which is None:
        return (values, None) if largest is None else (_halved(values, largest), largest)
    if largest is not None:
        _find_largest(values, largest)
    # Written out, since the kernels read every entry once for each tap.
    _, B, PH, PW, O = values.shape
    full = output(n, B, 2 * PH, 2 * PW, O, device=values.device, dtype=torch.float16 if halves else values.dtype)
    BO = min(64, _power(O))
    start(
        unpool_kernel, (-(-B * PH * PW // 32), -(-O // BO), n),
        values, which, full, values if largest is None else largest, B * PH * PW,
        O=O, PH=PH, PW=PW, HALVES=halves, BP=32, BO=BO, num_warps=4,
    )  # fmt: skip
    return full, largest


def _halved(values: Tensor, largest: Tensor) -> Tensor:
    """Every client's values as scaled halves; the bits of its largest absolute value go into `largest`, n zeros."""
    values = _rows(values)
    _find_largest(values, largest)
    made, size = output(*values.shape, device=values.device, dtype=torch.float16), values[0].numel()
    grid = -(-size // BLOCK), len(values)
    start(halve_kernel, grid, values, largest, made, values.stride(0), size, BLOCK=BLOCK, num_warps=8)
    return made


def _find_largest(values: Tensor, largest: Tensor) -> None:
    size = values[0].numel()
    grid = -(-size // (BLOCK * BLOCKS)), len(values)
    start(largest_kernel, grid, values, largest, values.stride(0), size, BLOCK=BLOCK, BLOCKS=BLOCKS, num_warps=8)


def _rows(values: Tensor) -> Tensor:
    """Tensors of clients that may lie apart in memory, each without gaps."""
    return values if values[0].is_contiguous() else values.contiguous()


def _channels_last(x: Tensor) -> Tensor:
    """Images n × B × C × H × W as n × B × H × W × C without gaps."""
    return x.permute(0, 1, 3, 4, 2).contiguous()


def input_gradient(g: Factor, taps: Factor, size: tuple[int, int], geometry: Geometry, dtype: torch.dtype) -> Tensor:
    """dx, n × B × C × H × W, channels last, from the gradient before pooling and the weights."""
    (full, largest), (w, largest_w) = g, taps
    n, B, OH, OW, O = full.shape
    _, KH, KW, _, C = w.shape
    H, W = size
    dx = output(n, B, H, W, C, device=full.device, dtype=dtype)
    # Tensor cores take a factor that lies across the sum from memory in two bytes only.
    w = w.contiguous() if w.dtype.itemsize == 2 else w.mT.contiguous().mT
    stride = geometry.stride
    rows = B * -(-H // stride) * -(-W // stride)
    tiles = _gradient_tiles(C, O, w.dtype)
    launch(
        input_gradient_kernel, (-(-rows // tiles["BM"]) * stride**2, n, -(-C // tiles["BN"])),
        full, w, dx, *(dx if each is None else each for each in (largest, largest_w)), *w.stride()[-2:], B,
        C=C, H=H, W=W, O=O, OH=OH, OW=OW, KH=KH, KW=KW, STRIDE=stride, PADDING=geometry.padding,
        HALVES=largest is not None, **tiles,
    )  # fmt: skip
    return dx.permute(0, 1, 4, 2, 3)


def weight_gradient(
    g: Factor, x: Factor, kernel: tuple[int, int], bias: bool, geometry: Geometry
) -> tuple[Tensor, Tensor]:
    """dtaps, n × KH × KW × O × C, and db, n × O, from the gradient before pooling and images n × B × H × W × C."""
    (full, largest_g), (images, largest_x) = g, x
    n, B, OH, OW, O = full.shape
    H, W, C = images.shape[2:]
    KH, KW = kernel
    positions, tiles = B * OH * OW, _tap_tiles(O, C, KH * KW, full.dtype)
    outputs = -(-O // tiles["BO"]) * -(-KH * KW // tiles["TAPS"]) * -(-C // tiles["BC"])
    splits, steps = _splits(PROGRAMS // (n * outputs), positions, tiles["BP"], O)
    dw = output(n, splits, KH, KW, O, C, device=full.device)
    db = output(n, splits, O if bias else 0, device=full.device)
    launch(
        tap_gradient_kernel, (splits, n, outputs),
        full, images, dw, db, *(dw if each is None else each for each in (largest_g, largest_x)),
        positions, splits, steps,
        C=C, H=H, W=W, O=O, OH=OH, OW=OW, KH=KH, KW=KW, STRIDE=geometry.stride, PADDING=geometry.padding,
        BIAS=bias, HALVES=largest_g is not None, **tiles,
    )  # fmt: skip
    return summed(dw), summed(db)


def _column_gradient(
    g: Tensor, which: Tensor, x: Tensor, kernel: tuple[int, int], bias: bool, geometry: Geometry, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The same for images of few channels, with g after pooling."""
    n, B, PH, PW, O = g.shape
    C, H, W = x.shape[2:]
    KH, KW = kernel
    J, positions, bf16 = KH * KW * C, B * PH * PW, dtype == torch.bfloat16
    # Few columns are no work for tensor cores either way; there tf32 is the faster.
    mode = "tf32" if J <= 32 else "bf16" if bf16 else "bf16x3"
    tiles = _sum_tiles(O, J, bf16)
    outputs = -(-O // tiles["BO"]) * -(-J // tiles["BN"])
    splits, steps = _splits(PROGRAMS // (n * outputs), positions, tiles["BP"], O)
    dw = output(n, splits, KH, KW, O, C, device=g.device)
    db = output(n, splits, O if bias else 0, device=g.device)
    launch(
        column_gradient_kernel, (splits, n, outputs),
        g, which, x, dw, db, *x.stride(), positions, splits, steps,
        C=C, H=H, W=W, O=O, PH=PH, PW=PW, KH=KH, KW=KW,
        STRIDE=geometry.stride, PADDING=geometry.padding, POOL=geometry.pool,
        BIAS=bias, MODE=mode, **tiles,
    )  # fmt: skip
    return summed(dw), summed(db)


def _splits(wanted: int, positions: int, tile: int, width: int) -> tuple[int, int]:
    """Among how many programs a sum over positions with `width` gradients each is divided, and the steps of each."""
    splits = max(1, min(wanted, -(-positions // (8 * tile))), -(-positions * width // MOST_IN_A_SPLIT))
    return splits, -(-positions // (splits * tile))


def summed(parts: Tensor) -> Tensor:
    """The sum over the second axis."""
    rows, count = parts.shape[:2]
    total = output(rows, *parts.shape[2:], device=parts.device)
    size = total[0].numel()
    if count == 1 or not size:
        return parts[:, 0] if count else total.zero_()
    start(sum_kernel, (-(-size // 128), rows), parts, total, count, size, BP=16, BS=128, num_warps=4)
    return total


def normalise(
    x: Tensor, gamma: Tensor, beta: Tensor, groups: int, eps: float, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    """y, like x of n × B × C × H × W channels last, and the mean and 1/√variance of every group, n × B × groups."""
    n, B, C, H, W = x.shape
    x, gamma, beta = _channels_last(x), _rows(gamma), _rows(beta)
    y = output_like(x)
    mean = output(n, B, groups, device=x.device)
    scale = output_like(mean)
    start(
        normalise_kernel, (B * groups, n),
        x, gamma, beta, y, mean, scale, gamma.stride(0), beta.stride(0), B, eps,
        C=C, POSITIONS=H * W, GROUPS=groups, ACTIVATION=activation, **_group_tiles(C // groups, H * W),
    )  # fmt: skip
    return y.permute(0, 1, 4, 2, 3), mean, scale


def normalise_backward(
    g: Tensor, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, scale: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    """dx like x, and dγ and dβ, 2 × n × C."""
    n, B, C, H, W = x.shape
    groups = mean.shape[-1]
    x, g, gamma, beta = _channels_last(x), _channels_last(g), _rows(gamma), _rows(beta)
    dx = output_like(x)
    parts = output(2, n, B, C, device=x.device)
    start(
        normalise_backward_kernel, (B * groups, n),
        g, x, gamma, beta, mean, scale, dx, *parts, gamma.stride(0), beta.stride(0), B,
        C=C, POSITIONS=H * W, GROUPS=groups, ACTIVATION=activation, **_group_tiles(C // groups, H * W),
    )  # fmt: skip
    return dx.permute(0, 1, 4, 2, 3), summed(parts.flatten(0, 1)).unflatten(0, (2, n))


def depthwise(x: Tensor, taps: Tensor, b: Tensor | None, geometry: Geometry) -> Tensor:
    """y (n × B × C × OH × OW, channels last); `taps` is n × KH × KW × C in the precision of the output."""
    n, B, C, H, W = x.shape
    KH, KW = taps.shape[1:3]
    OH, OW = geometry.output(H, W, KH, KW)
    x = _channels_last(x)
    y = output(n, B, OH, OW, C, device=x.device, dtype=taps.dtype)
    tiles = _channel_tiles(C)
    start(
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
    x, g, taps = _channels_last(x), _channels_last(g), taps.contiguous()
    shape = {"C": C, "H": H, "W": W, "OH": OH, "OW": OW, "KH": KH, "KW": KW}
    shape |= {"STRIDE": geometry.stride, "PADDING": geometry.padding, "DILATION": geometry.dilation}
    dx = g.new_empty(0)
    if needs_input:
        dx = output(n, B, H, W, C, device=g.device, dtype=g.dtype)
        tiles = _channel_tiles(C)
        start(
            depthwise_input_kernel, (-(-B * H * W // tiles["BP"]), n, -(-C // tiles["BC"])),
            g, taps, dx, B * H * W, **shape, **tiles,
        )  # fmt: skip
        dx = dx.permute(0, 1, 4, 2, 3)
    tiles, positions = _channel_tiles(C), B * OH * OW
    outputs = KH * KW * -(-C // tiles["BC"])
    splits, steps = _splits(2 * PROGRAMS // (n * outputs), positions, tiles["BP"], C)
    dw = output(n, splits, KH, KW, C, device=g.device)
    db = output(n, splits, C if bias else 0, device=g.device)
    start(
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
    return dx, summed(dw), summed(db)


# --- tiles ------------------------------------------------------------------------------------------------------


def _tiles(columns: int, depth: int, dtype: torch.dtype, pool: int = 1) -> dict[str, int]:
    """Rows, columns and depth of the tiles of a product with these columns and this depth.

    A row that is pooled stands for four.
    """
    short, stages = dtype.itemsize == 2, 3
    BM, BN, BK = 128, min(256 if short else 128, _power(columns)), min(64 if short else 32, _power(depth))
    warps = 8 if columns > 64 else 4
    if pool > 1:
        BM, BN, warps = (128, min(64, BN), 8) if columns >= 64 else (64, BN, 4)
    elif short and 64 < columns <= 256:
        BM, BN, BK, warps, stages = 64, 128, min(32, BK), 4, 4
    return {"BM": BM, "BN": BN, "BK": BK, "num_warps": warps, "num_stages": stages}


def _gradient_tiles(columns: int, depth: int, dtype: torch.dtype) -> dict[str, int]:
    """The same for the gradient of the images."""
    tiles = _tiles(columns, depth, dtype)
    if dtype.itemsize == 2 and columns > 64:
        tiles |= {"BM": 128 if columns <= 128 else 64, "BN": 128, "BK": min(64, _power(depth)), "num_warps": 4}
        tiles["num_stages"] = 3
    return tiles


def _tap_tiles(outputs: int, channels: int, taps: int, dtype: torch.dtype) -> dict[str, int]:
    """Taps, outputs, channels and positions of a program that sums over positions."""
    # Tensor cores that take 64 rows want float32 along the sum; those that take 16 do not mind.
    short, least = dtype.itemsize == 2, min(outputs, channels)
    if short and least >= 64:  # a larger tile, or fewer parts of sums, saves more than a second tap
        BO, BC, BP = 128 if least >= 128 else 64, 128 if least >= 512 else 64, 64 if least >= 256 else 32
        return {"TAPS": 1, "BO": BO, "BC": BC, "BP": BP, "num_warps": 4, "num_stages": 3}
    BO, BC = min(64 if short else 32, _power(outputs)), min(64, _power(channels))
    narrow = BO * BC <= 256
    return {
        "TAPS": 1 if taps < 3 else 3, "BO": BO, "BC": BC, "BP": 32 if narrow else 64,
        "num_warps": 1 if narrow else 2 if BO * BC <= 1024 else 4, "num_stages": 3,
    }  # fmt: skip


def _sum_tiles(outputs: int, columns: int, bf16: bool) -> dict[str, int]:
    """Outputs, columns and positions of a program that sums over positions."""
    BO, BN = min(128 if bf16 else 64, _power(outputs)), min(128, _power(columns))
    if columns <= 32:
        return {"BO": BO, "BN": BN, "BP": 32, "num_warps": 2, "num_stages": 1}
    return {"BO": BO, "BN": BN, "BP": 64 if bf16 else 32, "num_warps": 4, "num_stages": 3 if bf16 else 2}


def _group_tiles(channels: int, positions: int) -> dict[str, int]:
    """Positions and channels that a program of the normalisation holds at once: all of a group that is small enough."""
    BP, BC = triton.next_power_of_2(positions), triton.next_power_of_2(channels)
    if BP * BC > IN_REGISTERS:
        return {"BP": max(1, IN_REGISTERS // 2 // BC), "BC": BC, "num_warps": 16}
    return {"BP": BP, "BC": BC, "num_warps": 16 if BP * BC >= 8192 else 4}


def _channel_tiles(channels: int) -> dict[str, int]:
    """Positions and channels of a program of a depthwise convolution."""
    BC = min(64, _power(channels))
    return {"BP": 2048 // BC, "BC": BC, "num_warps": 4}


def _power(size: int) -> int:
    """The next power of two, at least the 16 of a matrix instruction."""
    return max(16, 1 << (size - 1).bit_length())
