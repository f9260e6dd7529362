"""Depthwise convolutions of n clients in Triton, channels last: every channel has its own taps, for every client.

Torch computes a stack of them as one grouped convolution in another layout, with a copy before and after. These kernels
read and write images as the other layers leave them.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def depthwise_kernel(
    x, w, b, y,
    POSITIONS,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr, DILATION: tl.constexpr,
    BIAS: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """y = conv(x, w) + b; x is n × B × H × W × C, w is n × (KH·KW) × C."""
    n = tl.program_id(1).to(tl.int64)
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    c = tl.program_id(2) * BC + tl.arange(0, BC)
    known, real = c < C, p < POSITIONS
    image, row, column = p // (OH * OW), (p // OW) % OH, p % OW
    x += (n * (POSITIONS // (OH * OW)) + image)[:, None] * (H * W * C) + c[None, :]
    w += n * (KH * KW * C) + c
    acc = tl.zeros((BP, BC), dtype=tl.float32)
    for tap in tl.static_range(KH * KW):
        h = row * STRIDE - PADDING + (tap // KW) * DILATION
        v = column * STRIDE - PADDING + (tap % KW) * DILATION
        inside = (real & (h >= 0) & (h < H) & (v >= 0) & (v < W))[:, None] & known[None, :]
        pixels = tl.load(x + (h * W + v)[:, None] * C, mask=inside, other=0.0).to(tl.float32)
        acc += pixels * tl.load(w + tap * C, mask=known, other=0.0).to(tl.float32)[None, :]
    if BIAS:
        acc += tl.load(b + n * C + c, mask=known, other=0.0).to(tl.float32)[None, :]
    out = (n * POSITIONS + p)[:, None] * C + c[None, :]
    tl.store(y + out, acc.to(y.dtype.element_ty), mask=real[:, None] & known[None, :])


@triton.jit
def depthwise_input_kernel(
    g, w, dx,
    PIXELS,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr, DILATION: tl.constexpr,
    BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """dx from g, n × B × OH × OW × C."""
    n = tl.program_id(1).to(tl.int64)
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    c = tl.program_id(2) * BC + tl.arange(0, BC)
    known, real = c < C, p < PIXELS
    image, row, column = p // (H * W), (p // W) % H, p % W
    g += (n * (PIXELS // (H * W)) + image)[:, None] * (OH * OW * C) + c[None, :]
    w += n * (KH * KW * C) + c
    acc = tl.zeros((BP, BC), dtype=tl.float32)
    for tap in tl.static_range(KH * KW):
        h = row + PADDING - (tap // KW) * DILATION
        v = column + PADDING - (tap % KW) * DILATION
        inside = real & (h >= 0) & (v >= 0)
        if STRIDE > 1:
            inside = inside & (h % STRIDE == 0) & (v % STRIDE == 0)
            h, v = h // STRIDE, v // STRIDE
        inside = inside & (h < OH) & (v < OW)
        grads = tl.load(g + (h * OW + v)[:, None] * C, mask=inside[:, None] & known[None, :], other=0.0)
        acc += grads.to(tl.float32) * tl.load(w + tap * C, mask=known, other=0.0).to(tl.float32)[None, :]
    out = (n * PIXELS + p)[:, None] * C + c[None, :]
    tl.store(dx + out, acc.to(dx.dtype.element_ty), mask=real[:, None] & known[None, :])


@triton.jit(do_not_specialize=["SPLITS", "STEPS"])
def depthwise_weight_kernel(
    g, x, dw, db,
    POSITIONS, SPLITS, STEPS,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr, DILATION: tl.constexpr,
    BIAS: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """One split's part of one tap of dw, n × SPLITS × (KH·KW) × C, and of db, n × SPLITS × C."""
    COLUMNS: tl.constexpr = (C + BC - 1) // BC
    split, n = tl.program_id(0), tl.program_id(1).to(tl.int64)
    tap = tl.program_id(2) // COLUMNS
    c = (tl.program_id(2) % COLUMNS) * BC + tl.arange(0, BC)
    known = c < C
    x += n * (POSITIONS // (OH * OW)) * (H * W * C) + c[None, :]
    g += n * POSITIONS * C + split.to(tl.int64) * STEPS * (BP * C) + c[None, :]
    acc = tl.zeros((BP, BC), dtype=tl.float32)
    bias = tl.zeros((BP, BC), dtype=tl.float32)
    for step in range(STEPS):
        p = (split * STEPS + step) * BP + tl.arange(0, BP)
        real = p < POSITIONS
        h = ((p // OW) % OH) * STRIDE - PADDING + (tap // KW) * DILATION
        v = (p % OW) * STRIDE - PADDING + (tap % KW) * DILATION
        inside = (real & (h >= 0) & (h < H) & (v >= 0) & (v < W))[:, None] & known[None, :]
        entries = (step * BP + tl.arange(0, BP))[:, None] * C
        grads = tl.load(g + entries, mask=real[:, None] & known[None, :], other=0.0).to(tl.float32)
        at = (p // (OH * OW)).to(tl.int64) * (H * W) + h * W + v
        acc += grads * tl.load(x + at[:, None] * C, mask=inside, other=0.0).to(tl.float32)
        if BIAS:
            bias += grads
    part = n * SPLITS + split
    tl.store(dw + (part * (KH * KW) + tap) * C + c, tl.sum(acc, axis=0), mask=known)
    if BIAS:
        if tap == 0:
            tl.store(db + part * C + c, tl.sum(bias, axis=0), mask=known)
