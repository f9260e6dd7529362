"""The stacked convolution's kernels on a GPU: their error against double precision, and microseconds by tile sizes.

PYTHONPATH=src python3 benchmarks/gpu_kernels.py
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from fedhv.engines.kernels import launch
from fedhv.engines.kernels.geometry import Geometry

CASES = [  # n, B, C, side, O, kernel, geometry, bias
    (2, 3, 3, 8, 64, 3, Geometry(1, 1, 2), True),
    (2, 3, 1, 14, 10, 3, Geometry(1, 1, 2), True),
    (2, 2, 10, 7, 15, 3, Geometry(1, 0, 2), True),
    (2, 5, 64, 16, 64, 3, Geometry(1, 1, 2), True),
    (2, 2, 64, 8, 128, 3, Geometry(2, 1, 1), False),
    (2, 2, 64, 8, 128, 1, Geometry(2, 0, 1), False),
    (1, 2, 160, 4, 136, 3, Geometry(1, 1, 1), True),
]

WORK = {
    "conv1": (10, 128, 3, 32, 64, 3, Geometry(1, 1, 2), True),
    "conv2": (10, 128, 64, 16, 64, 3, Geometry(1, 1, 2), True),
    "conv2 x15": (150, 128, 64, 16, 64, 3, Geometry(1, 1, 2), True),
    "stage1": (10, 64, 64, 32, 64, 3, Geometry(1, 1, 1), False),
    "stage2": (10, 64, 128, 16, 128, 3, Geometry(1, 1, 1), False),
    "stage4": (10, 64, 512, 4, 512, 3, Geometry(1, 1, 1), False),
}


def tensors(n: int, B: int, C: int, side: int, O: int, k: int, bias: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Random images (channels last), weights and biases."""
    x = torch.randn(n, B, side, side, C, device="cuda").permute(0, 1, 4, 2, 3)
    w = torch.randn(n, O, C, k, k, device="cuda") / (C * k * k) ** 0.5
    return x, w, torch.randn(n, O, device="cuda") if bias else None


def error(got: Tensor, expected: Tensor) -> float:
    """Relative, in the norm."""
    return float((got.double() - expected).norm() / expected.norm())


def check() -> None:
    """Compare with torch in double precision; the gradients on the same choice of maxima."""
    for n, B, C, side, O, k, geometry, bias in CASES:
        x, w, b = tensors(n, B, C, side, O, k, bias)
        wide = [t.double().requires_grad_() for t in (x, w, b) if t is not None]
        ys = []
        for i in range(n):
            y = F.conv2d(wide[0][i], wide[1][i], wide[2][i] if bias else None, geometry.stride, geometry.padding)
            ys.append(F.relu(F.max_pool2d(y, 2)) if geometry.pool == 2 else y)
        expected = torch.stack(ys)
        g = torch.randn_like(expected)
        gradients = torch.autograd.grad(expected, wide, g)
        for bf16 in (False, True):
            y, which = launch.forward(x, w, b, geometry, bf16)
            gy = g.to(y.dtype).permute(0, 1, 3, 4, 2).contiguous()
            dx = launch.input_gradient(gy, which, w, (side, side), geometry, bf16)
            dw, db = launch.weight_gradient(gy, which, x, (k, k), bias, geometry, bf16)
            errors = [error(y, expected), error(dx, gradients[0]), error(dw, gradients[1])]
            errors += [error(db, gradients[2])] if bias else []
            print("bf16" if bf16 else "tf32", (n, B, C, side, O, k), geometry, [f"{e:.1e}" for e in errors], flush=True)


def best(name: str, run: Callable[[], object], space: list[dict[str, int]], patch: str) -> None:
    """Time every tiling and print the best three."""
    original = getattr(launch, patch)
    times = []
    for tiles in space:
        setattr(launch, patch, lambda *a, tiles=tiles: {**original(*a), **tiles})
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
    y, which = launch.forward(x, w, b, geometry, bf16)
    g = torch.randn_like(y).permute(0, 1, 3, 4, 2).contiguous()
    label = f"{name} {'bf16' if bf16 else 'tf32'}"
    flat, wide = C * k * k <= launch.FLAT, min(128, O)
    shapes = [(128, 4, 3), (128, 8, 3), (256, 8, 3), (128, 4, 2), (128, 4, 4), (64, 4, 3)]
    space = [
        {"BM": m, "BN": wide, "num_warps": warps, "num_stages": stages, **({} if flat else {"BK": bk})}
        for m, warps, stages in shapes[: 3 if flat else 6]
        for bk in ((64,) if bf16 or flat else (32, 64))
    ]
    best(label + " forward", lambda: launch.forward(x, w, b, geometry, bf16), space, "_tiles")
    if C > 3:
        size = (side, side)
        best(label + " input", lambda: launch.input_gradient(g, which, w, size, geometry, bf16), space, "_tiles")
    sums = [
        {"BO": bo, "BN": bn, "BP": bp, "num_warps": 4 if bo == 64 else 8, "num_stages": stages}
        for bo, bn, bp, stages in itertools.product(
            sorted({64, wide}), (32,) if C == 3 else (64, 128), (32, 64), (2, 3)
        )
    ]
    best(
        label + " weight", lambda: launch.weight_gradient(g, which, x, (k, k), bias, geometry, bf16), sums, "_sum_tiles"
    )


if __name__ == "__main__":
    if len(sys.argv) == 1:
        check()
    for name, bf16 in itertools.product(sys.argv[1:] or list(WORK), (False, True)):
        tune(name, bf16)
