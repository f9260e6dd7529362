"""The stacked kernels on a GPU: their error against double precision, and microseconds by tile sizes.

PYTHONPATH=src python3 benchmarks/gpu_kernels.py               everything
PYTHONPATH=src python3 benchmarks/gpu_kernels.py stage1:bf16   errors, and one layer's tiles in one precision
PYTHONPATH=src python3 benchmarks/gpu_kernels.py errors        errors alone
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from fedhv.engines.kernels import launch, starting
from fedhv.engines.kernels.activations import ACTIVATIONS
from fedhv.engines.kernels.ahead import compile_all
from fedhv.engines.kernels.geometry import Geometry

CASES = [  # n, B, C, side, O, kernel, geometry, bias
    (2, 3, 3, 8, 64, 3, Geometry(1, 1, 2), True),
    (2, 3, 1, 14, 10, 3, Geometry(1, 1, 2), True),
    (2, 2, 10, 7, 15, 3, Geometry(1, 0, 2), True),
    (2, 5, 64, 16, 64, 3, Geometry(1, 1, 2), True),
    (2, 2, 64, 8, 128, 3, Geometry(2, 1, 1), False),
    (2, 2, 48, 9, 32, 5, Geometry(3, 1, 1), False),
    (2, 2, 64, 8, 128, 1, Geometry(2, 0, 1), False),
    (1, 2, 160, 4, 136, 3, Geometry(1, 1, 1), True),
]

WORK = {
    "lenet1": (20, 32, 1, 28, 10, 3, Geometry(1, 1, 2), True),
    "lenet2": (20, 32, 10, 14, 15, 3, Geometry(1, 0, 2), True),
    "lenet1 x12": (240, 32, 1, 28, 10, 3, Geometry(1, 1, 2), True),
    "lenet2 x12": (240, 32, 10, 14, 15, 3, Geometry(1, 0, 2), True),
    "lenet1 report": (1, 8192, 1, 28, 10, 3, Geometry(1, 1, 2), True),
    "lenet2 report": (1, 8192, 10, 14, 15, 3, Geometry(1, 0, 2), True),
    "conv1": (10, 128, 3, 32, 64, 3, Geometry(1, 1, 2), True),
    "conv2": (10, 128, 64, 16, 64, 3, Geometry(1, 1, 2), True),
    "conv2 x15": (150, 128, 64, 16, 64, 3, Geometry(1, 1, 2), True),
    "stage1": (30, 64, 64, 32, 64, 3, Geometry(1, 1, 1), False),
    "stage2": (30, 64, 128, 16, 128, 3, Geometry(1, 1, 1), False),
    "stage3": (30, 64, 256, 8, 256, 3, Geometry(1, 1, 1), False),
    "stage4": (30, 64, 512, 4, 512, 3, Geometry(1, 1, 1), False),
    "into stage2": (30, 64, 64, 32, 128, 3, Geometry(2, 1, 1), False),
    "into stage4": (30, 64, 256, 8, 512, 3, Geometry(2, 1, 1), False),
}

# n, B, channels, side, groups
NORMS = [(2, 3, 8, 5, 2), (2, 2, 6, 40, 1), (2, 3, 64, 32, 2), (2, 3, 512, 4, 2), (2, 3, 64, 64, 1)]

NORM_WORK = [(30, 64, 64, 32, 2), (30, 64, 128, 16, 2), (30, 64, 256, 8, 2), (30, 64, 512, 4, 2)]


def tensors(n: int, B: int, C: int, side: int, O: int, k: int, bias: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Random images (channels last), weights and biases."""
    x = torch.randn(n, B, side, side, C, device="cuda").permute(0, 1, 4, 2, 3)
    w = torch.randn(n, O, C, k, k, device="cuda") / (C * k * k) ** 0.5
    return x, w, torch.randn(n, O, device="cuda") if bias else None


def as_taps(w: Tensor, bf16: bool | None = None) -> Tensor:
    """Weights n × O × C × KH × KW as the kernels take them."""
    taps = w.permute(0, 3, 4, 1, 2).contiguous()
    return taps if bf16 is None else taps.to(torch.bfloat16 if bf16 else torch.float32)


def error(got: Tensor, expected: Tensor) -> float:
    """The relative error in the norm."""
    return float((got.double() - expected.detach()).norm() / expected.detach().norm())


def exact(x: Tensor, w: Tensor, b: Tensor | None, geometry: Geometry) -> Tensor:
    """The result of torch's layers, client by client, before pooling."""
    bs = [None] * len(x) if b is None else list(b)
    return torch.stack([F.conv2d(x[i], w[i], bs[i], geometry.stride, geometry.padding) for i in range(len(x))])


def chosen(full: Tensor, which: Tensor) -> Tensor:
    """The position (0 … 3) that a kernel chose as the maximum of every 2×2 window; 0 where ReLU gives zero."""
    rows, columns = which.shape[2:4]
    windows = full[..., : 2 * rows, : 2 * columns].unflatten(-1, (-1, 2)).unflatten(-3, (-1, 2))
    windows = windows.movedim(-3, -2).flatten(-2)  # n × B × O × rows × columns × 4
    place = which.permute(0, 1, 4, 2, 3)[..., None].long()
    return torch.where(place < 4, windows.gather(-1, place.clamp(max=3)), 0.0).squeeze(-1)


def factors(x: Tensor, taps: Tensor, images: Tensor, weights: Tensor, largest: Tensor) -> tuple[Tensor, ...]:
    """What the way back takes: halves where the forward pass made them."""
    return (images.permute(0, 1, 4, 2, 3), weights, largest) if largest.numel() else (x, taps, largest)


def check() -> None:
    """Compare with torch in double precision; gradients on the kernel's choice among nearly equal maxima."""
    for n, B, C, side, O, k, geometry, bias in CASES:
        x, w, b = tensors(n, B, C, side, O, k, bias)
        wide = [t.double().requires_grad_() for t in (x, w, b) if t is not None]
        for bf16 in (False, True):
            taps = as_taps(w, bf16)
            y, which, *halves = launch.forward(x, taps, b, geometry, True)
            full = exact(wide[0], wide[1], wide[2] if bias else None, geometry)
            pooled = geometry.pool == 2
            expected = F.max_pool2d(full.flatten(0, 1), 2).relu().view_as(y) if pooled else full
            g = torch.randn_like(y)
            gradients = torch.autograd.grad(chosen(full, which) if pooled else full, wide, g.double())
            gy = g.permute(0, 1, 3, 4, 2).contiguous()
            dx, dtaps, db = launch.backward(gy.to(y.dtype), which, *factors(x, taps, *halves), bias, True, geometry)
            errors = [error(y, expected), error(dx, gradients[0]), error(dtaps, as_taps(gradients[1]))]
            errors += [error(db, gradients[2])] if bias else []
            print("bf16" if bf16 else "tf32", (n, B, C, side, O, k), geometry, [f"{e:.1e}" for e in errors], flush=True)


def check_norms() -> None:
    """GroupNorm with an activation against double precision."""
    for (n, B, C, side, groups), activation in zip(NORMS, ("relu", "none", "relu6", "hardswish", "silu"), strict=True):
        x = torch.randn(n, B, side, side, C, device="cuda").add(1).permute(0, 1, 4, 2, 3)
        gamma, beta = torch.randn(n, C, device="cuda"), torch.randn(n, C, device="cuda")
        for dtype in (torch.float32, torch.bfloat16):
            x = x.to(dtype)
            some = [t[:2].double().requires_grad_() for t in (x, gamma, beta)]
            normal = torch.stack([F.group_norm(some[0][i], groups, some[1][i], some[2][i]) for i in range(2)])
            expected = ACTIVATIONS[activation].forward(normal)
            y, mean, scale = launch.normalise(x, gamma, beta, groups, 1e-5, activation)
            g = torch.randn_like(y)
            dx, sums = launch.normalise_backward(g, x, gamma, beta, mean, scale, activation)
            right = torch.autograd.grad(expected, some, g[:2].double())
            errors = [error(y[:2], expected), *(error(a[:2], r) for a, r in zip((dx, *sums), right, strict=True))]
            print("norm", activation, dtype, (n, B, C, side, groups), [f"{e:.1e}" for e in errors], flush=True)


def check_nan() -> None:
    """Fused pooling and ReLU give NaN exactly where torch's layers do."""
    geometry, groups = Geometry(1, 1, 2), 4
    x, w, b = tensors(2, 3, 64, 8, 64, 3, True)
    x[1, 2, 5, 3, 3] = torch.nan
    y, *_ = launch.forward(x, as_taps(w, False), b, geometry, True)
    expected = F.max_pool2d(exact(x, w, b, geometry).flatten(0, 1), 2).relu().view_as(y)
    normed, *_ = launch.normalise(x, w[:, :, 0, 0, 0], w[:, :, 1, 0, 0], groups, 1e-5, "relu")
    normal = F.group_norm(x[1], groups).relu()
    for name, got, right in (("pooled", y, expected), ("normalised", normed[1], normal)):
        same = torch.equal(got.isnan(), right.isnan())
        print(f"not numbers, {name}: {int(got.isnan().sum())}, where torch has them: {same}", flush=True)


def tune_norm(n: int, B: int, C: int, side: int, groups: int) -> None:
    """Microseconds of GroupNorm, forward and backward, by tile sizes, in bfloat16."""
    x = torch.randn(n, B, side, side, C, device="cuda").bfloat16().permute(0, 1, 4, 2, 3)
    gamma, beta = torch.randn(n, C, device="cuda"), torch.randn(n, C, device="cuda")
    y, mean, scale = launch.normalise(x, gamma, beta, groups, 1e-5, "relu")
    g = torch.randn_like(y)
    space = [
        {"BP": max(1, min(side * side, tile * groups // C)), "num_warps": warps}
        for tile in (2048, 4096, 8192)
        for warps in (4, 8, 16)
    ]
    name = f"norm {C} x {side}"
    print(f"{name}: one pass over memory takes {x.numel() * x.element_size() / 4.8e6:.1f} us")
    best(name, lambda: launch.normalise(x, gamma, beta, groups, 1e-5, "relu"), space, "_group_tiles")

    def back() -> object:
        return launch.normalise_backward(g, x, gamma, beta, mean, scale, "relu")

    best(name + " back", back, space, "_group_tiles")


def best(name: str, run: Callable[[], object], space: list[dict[str, int]], patch: str) -> None:
    """Time every tiling and print the best three."""
    original = getattr(launch, patch)
    times = []

    def use(tiles: dict[str, int]) -> None:
        setattr(launch, patch, lambda *a: {**original(*a), **tiles})

    with starting.planning() as planned:
        for tiles in space:
            use(tiles)
            run()
    compile_all(dict.fromkeys(planned))
    for tiles in space:
        use(tiles)
        try:
            times.append((triton.testing.do_bench(run, warmup=5, rep=20, return_mode="median") * 1e3, tiles))
        except Exception as e:
            times.append((float("inf"), {"error": str(e)[:60]}))  # too much shared memory, mostly
    setattr(launch, patch, original)
    default = triton.testing.do_bench(run, warmup=5, rep=20, return_mode="median") * 1e3
    times.sort(key=lambda pair: pair[0])
    print(f"{name:28s} default {default:8.1f} us;", "; ".join(f"{t:.1f} {c}" for t, c in times[:3]), flush=True)


def tune(name: str, bf16: bool) -> None:
    """Microseconds of the three kernels by tile sizes."""
    n, B, C, side, O, k, geometry, bias = WORK[name]
    x, w, b = tensors(n, B, C, side, O, k, bias)
    x = x.bfloat16() if bf16 and C > 3 else x
    taps = as_taps(w, bf16)
    y, which, *halves = launch.forward(x, taps, b, geometry, True)
    g = torch.randn_like(y).permute(0, 1, 3, 4, 2).contiguous()
    label = f"{name} {'bf16' if bf16 else 'tf32'}"
    flop = 2 * g.numel() * geometry.pool**2 * C * k * k
    print(f"{label}: {flop / 1e9:.1f} GFLOP, {flop / 400e6:.1f} us at 400 TFLOP/s", flush=True)
    flat = launch.is_flat(taps)

    def shapes(columns: int, pool: int = 1) -> list[dict[str, int]]:
        wide = min(128, launch._power(columns))
        rows = (32, 64, 128) if pool > 1 else (64, 128, 256)
        sizes = [(m, warps, stages) for m in rows for warps in (2, 4, 8) for stages in ((3,) if flat else (2, 3, 4))]
        return [{"BM": m, "BN": wide, "num_warps": warps, "num_stages": stages} for m, warps, stages in sizes]

    best(label + " forward", lambda: launch.forward(x, taps, b, geometry, True), shapes(O, geometry.pool), "_tiles")
    g = g.to(taps.dtype)
    given, given_taps, largest = factors(x, taps, *halves)
    if launch.FEW_CHANNELS > C:
        space = [
            {"BP": positions, "num_warps": warps, "num_stages": stages}
            for positions in (32, 64, 128)
            for warps in (2, 4, 8)
            for stages in (1, 2)
        ]

        def backward() -> object:
            return launch.backward(g, which, given, given_taps, largest, bias, False, geometry)

        best(label + " weight", backward, space, "_sum_tiles")
        return
    bits_x, bits_taps = largest if largest.numel() else (None, None)
    images = given.permute(0, 1, 3, 4, 2).contiguous()

    def gradient() -> launch.Factor:
        return launch._factor(g, bits_x is not None, which if geometry.pool > 1 else None)

    best(f"{label} gradient", gradient, [], "_tiles")
    full, size = gradient(), (side, side)

    def input_gradient() -> object:
        return launch.input_gradient(full, (given_taps, bits_taps), size, geometry, g.dtype)

    best(label + " input", input_gradient, shapes(C), "_tiles")
    space = [
        {"BP": positions, "num_warps": warps, "num_stages": stages}
        for positions in (32, 64, 128)
        for warps in (1, 2, 4, 8)
        for stages in (2, 3, 4)
    ]

    def weight_gradient() -> object:
        return launch.weight_gradient(full, (images, bits_x), (k, k), bias, geometry)

    best(label + " weight", weight_gradient, space, "_tap_tiles")


if __name__ == "__main__":
    check()
    check_norms()
    check_nan()
    for wanted in sys.argv[1:] or ["norm", *(f"{name}:{precision}" for name in WORK for precision in ("tf32", "bf16"))]:
        name, _, precision = wanted.partition(":")
        if name == "errors":
            continue
        if name == "norm":
            for work in NORM_WORK:
                tune_norm(*work)
        else:
            tune(name, precision == "bf16")
