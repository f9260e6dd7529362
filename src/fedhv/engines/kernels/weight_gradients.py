"""Gradients of stacked convolutions' weights in Triton.

The sum over positions is long and its result small: it is divided among SPLITS programs, whose parts are added
afterwards in a fixed order. How it is divided depends on the number of clients, and the compiled code does not.

A client's gradients may be more than 2³¹ numbers. A split begins at an offset of 64 bits; within it 32 bits are enough
(see `launch.MOST_IN_A_SPLIT`).
"""

from __future__ import annotations

import triton
import triton.language as tl

from fedhv.engines.kernels.halves import scale


@triton.jit
def bias_gradient(
    g, which, o, split, POSITIONS, STEPS,
    O: tl.constexpr, POOLED: tl.constexpr, BO: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """One split's part of db for the outputs o: the sum of their gradients over positions.

    It reads the gradients again. Summed in the loop of the products, their tiles in shared memory would have two
    readers; Triton 3.6 then keeps one buffer too few and overwrites tiles that tensor cores still read.
    """
    first = split.to(tl.int64) * STEPS * (BP * O)
    g += first
    which += first
    sums = tl.zeros((BP, BO), dtype=tl.float32)
    for step in range(STEPS):
        place = step * BP + tl.arange(0, BP)
        mask = (split * STEPS * BP + place < POSITIONS)[:, None] & (o < O)[None, :]
        entries = place[:, None] * O + o[None, :]
        grads = tl.load(g + entries, mask=mask, other=0.0).to(tl.float32)
        if POOLED:  # positions that no maximum came from have no gradient
            grads = tl.where(tl.load(which + entries, mask=mask, other=4).to(tl.int32) < 4, grads, 0.0)
        sums += grads
    return tl.sum(sums, axis=0)


@triton.jit(do_not_specialize=["SPLITS", "STEPS"])
def tap_gradient_kernel(
    g, x, dw, db, largest_g, largest_x,
    POSITIONS, SPLITS, STEPS,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, O: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr,
    BIAS: tl.constexpr, HALVES: tl.constexpr, TAPS: tl.constexpr, BO: tl.constexpr, BC: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """One split's part of dw, n × SPLITS × (KH·KW) × O × C, and of db, n × SPLITS × O.

    g is n × B × OH × OW × O, x is n × B × H × W × C. A program takes one tap, or three: then it reads gradients once
    for three products.
    """
    BLOCKS: tl.constexpr = (C + BC - 1) // BC
    PARTS: tl.constexpr = (KH * KW + TAPS - 1) // TAPS
    split, n = tl.program_id(0), tl.program_id(1).to(tl.int64)
    first = ((tl.program_id(2) // BLOCKS) % PARTS) * TAPS
    o = (tl.program_id(2) // (BLOCKS * PARTS)) * BO + tl.arange(0, BO)
    c = (tl.program_id(2) % BLOCKS) * BC + tl.arange(0, BC)
    x += n * (POSITIONS // (OH * OW)) * (H * W * C)
    g += n * POSITIONS * O
    mine = g + split.to(tl.int64) * STEPS * (BP * O)
    acc0 = tl.zeros((BO, BC), dtype=tl.float32)
    acc1, acc2 = acc0, acc0
    for step in range(STEPS):
        p = (split * STEPS + step) * BP + tl.arange(0, BP)
        real = p < POSITIONS
        mask = real[:, None]
        if O % BO != 0:
            mask = mask & (o < O)[None, :]
        entries = (step * BP + tl.arange(0, BP))[:, None] * O + o[None, :]
        flipped = tl.trans(tl.load(mine + entries, mask=mask, other=0.0))
        top, left = ((p // OW) % OH) * STRIDE - PADDING, (p % OW) * STRIDE - PADDING
        corner = (p // (OH * OW)).to(tl.int64) * (H * W) + top * W + left
        for t in tl.static_range(TAPS):
            kh, kw = (first + t) // KW, (first + t) % KW
            inside = real & (top + kh >= 0) & (top + kh < H) & (left + kw >= 0) & (left + kw < W)
            if KH * KW % TAPS != 0:
                inside = inside & (first + t < KH * KW)
            wanted = inside[:, None]
            if C % BC != 0:
                wanted = wanted & (c < C)[None, :]
            pixels = tl.load(x + ((corner + kh * W + kw) * C)[:, None] + c[None, :], mask=wanted, other=0.0)
            if t == 0:
                acc0 = tl.dot(flipped, pixels, acc0)
            elif t == 1:
                acc1 = tl.dot(flipped, pixels, acc1)
            else:
                acc2 = tl.dot(flipped, pixels, acc2)
    part = n * SPLITS + split
    scale_g, both = 1.0, 1.0
    if HALVES:
        scale_g = scale(tl.load(largest_g + n))
        both = scale_g * scale(tl.load(largest_x + n))
    for t in tl.static_range(TAPS):
        acc = acc0
        if t == 1:
            acc = acc1
        if t == 2:
            acc = acc2
        out = ((part * (KH * KW) + first + t) * O + o)[:, None] * C + c[None, :]
        tl.store(dw + out, acc / both, mask=(o < O)[:, None] & (c < C)[None, :] & (first + t < KH * KW))
    if BIAS:
        if first + tl.program_id(2) % BLOCKS == 0:
            bias = bias_gradient(g, g, o, split, POSITIONS, STEPS, O, False, BO, BP)
            tl.store(db + part * O + o, bias / scale_g, mask=o < O)


@triton.jit(do_not_specialize=["SPLITS", "STEPS"])
def column_gradient_kernel(
    g, which, x, dw, db,
    sxn, sxb, sxc, sxh, sxw,
    POSITIONS, SPLITS, STEPS,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, O: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr, POOL: tl.constexpr,
    BIAS: tl.constexpr, MODE: tl.constexpr, BO: tl.constexpr, BN: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """One split's part of dw, n × SPLITS × (KH·KW) × O × C, and of db, n × SPLITS × O, for images of few channels.

    Columns of the product are taps and channels. Both factors lie across the sum, which tensor cores take from memory
    in two bytes only: MODE "bf16x3" multiplies float32 as three products of bfloat16 parts, closer than tf32 and much
    faster where there are many columns.
    """
    J: tl.constexpr = KH * KW * C
    COLUMNS: tl.constexpr = (J + BN - 1) // BN
    split, n = tl.program_id(0), tl.program_id(1).to(tl.int64)
    o = (tl.program_id(2) // COLUMNS) * BO + tl.arange(0, BO)
    j = (tl.program_id(2) % COLUMNS) * BN + tl.arange(0, BN)
    tap, c = j // C, j % C
    kh, kw = (tap // KW)[None, :], (tap % KW)[None, :]
    known = (j < J)[None, :]
    if C % BN == 0:  # all columns are of one tap: then where a pixel lies does not depend on the column
        kh, kw = ((tl.program_id(2) % COLUMNS) * BN // C) // KW, ((tl.program_id(2) % COLUMNS) * BN // C) % KW
        known = True
    x += n * sxn
    g += n * POSITIONS * O
    which += n * POSITIONS * O
    acc = tl.zeros((BO, BN), dtype=tl.float32)
    first = split.to(tl.int64) * STEPS * (BP * O)
    for step in range(STEPS):
        p = (split * STEPS + step) * BP + tl.arange(0, BP)
        real = p < POSITIONS
        mask = real[:, None] & (o < O)[None, :]
        entries = (step * BP + tl.arange(0, BP))[:, None] * O + o[None, :]
        grads = tl.load(g + first + entries, mask=mask, other=0.0)
        if POOL > 1:
            place = tl.load(which + first + entries, mask=mask, other=4).to(tl.int32)
        image = p // (PW * PH)
        for q in tl.static_range(POOL * POOL):
            oh, ow = ((p // PW) % PH) * POOL + q // POOL, (p % PW) * POOL + q % POOL
            ih, iw = oh[:, None] * STRIDE - PADDING + kh, ow[:, None] * STRIDE - PADDING + kw
            inside = (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W) & real[:, None] & known
            at = (image.to(tl.int64) * sxb)[:, None] + ih * sxh + iw * sxw + (c * sxc)[None, :]
            pixels = tl.load(x + at, mask=inside, other=0.0)
            mine = grads
            if POOL > 1:
                mine = tl.where(place == q, grads, 0.0)
            mine = tl.trans(mine)
            if MODE == "tf32":
                acc = tl.dot(mine.to(tl.float32), pixels.to(tl.float32), acc)
            else:
                high_g, high_x = mine.to(tl.bfloat16), pixels.to(tl.bfloat16)
                acc = tl.dot(high_g, high_x, acc)
                if MODE == "bf16x3":
                    low_g = (mine - high_g.to(tl.float32)).to(tl.bfloat16)
                    low_x = (pixels - high_x.to(tl.float32)).to(tl.bfloat16)
                    acc = tl.dot(high_g, low_x, acc)
                    acc = tl.dot(low_g, high_x, acc)
    part = n * SPLITS + split
    out = (part * J * O + tap * (O * C) + c)[None, :] + (o * C)[:, None]
    tl.store(dw + out, acc, mask=(o < O)[:, None] & (j < J)[None, :])
    if BIAS:
        if tl.program_id(2) % COLUMNS == 0:
            bias = bias_gradient(g, which, o, split, POSITIONS, STEPS, O, POOL > 1, BO, BP)
            tl.store(db + part * O + o, bias, mask=o < O)
