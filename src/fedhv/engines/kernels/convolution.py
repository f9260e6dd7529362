"""Convolutions of n clients, each with its own images and weights, as implicit matrix products in Triton.

The libraries' answer to a stack of different kernels is the grouped convolution, which reaches a small part of what
the GPU can do. Here every tile of the output is a product of gathered pixels with one client's weights; a 2×2
maximum and ReLU behind the convolution are taken before anything is written, so that its large output never exists.

Rows of a product are positions, columns are channels. The forward pass notes in `which`, for the backward pass, the
place in its window (0 … 3) that was largest; 4 means that ReLU let nothing through.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fedhv.engines.kernels.halves import scale


@triton.jit
def forward_kernel(
    x, w, b, y, which, largest_x, largest_w,
    sxn, sxb, sxc, sxh, sxw, sbn,
    POSITIONS,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, O: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr, POOL: tl.constexpr,
    BIAS: tl.constexpr, PLACES: tl.constexpr, FLAT: tl.constexpr, HALVES: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y = conv(x, w) + b, then the maximum of every window and ReLU where POOL is 2; w is n × (KH·KW) × O × C.

    The places of a window have a product each, so that its maximum is taken within a thread. FLAT takes channels and
    taps as one axis, for inputs of few channels. With HALVES x and w are scaled halves (see `halves`).
    """
    Q: tl.constexpr = POOL * POOL
    n = tl.program_id(1).to(tl.int64)
    p = tl.program_id(0) * BM + tl.arange(0, BM)
    top = ((p // PW) % PH) * (POOL * STRIDE) - PADDING
    left = (p % PW) * (POOL * STRIDE) - PADDING
    real = p < POSITIONS
    o = tl.program_id(2) * BN + tl.arange(0, BN)
    w += n * (C * KH * KW * O)
    corners = x + n * sxn + (p // (PW * PH)).to(tl.int64) * sxb + top * sxh + left * sxw
    acc0 = tl.zeros((BM, BN), dtype=tl.float32)
    acc1, acc2, acc3 = acc0, acc0, acc0
    if FLAT:
        K: tl.constexpr = C * KH * KW
        k = tl.arange(0, BK)
        tap, c = k // C, k % C
        at = (tap * (O * C) + c)[:, None] + (o * C)[None, :]
        taps = tl.load(w + at, mask=(k < K)[:, None] & (o < O)[None, :], other=0.0)
        offsets = c * sxc + (tap // KW) * sxh + (tap % KW) * sxw
        for q in tl.static_range(Q):
            ih = (top + (q // POOL) * STRIDE)[:, None] + (tap // KW)[None, :]
            iw = (left + (q % POOL) * STRIDE)[:, None] + (tap % KW)[None, :]
            inside = (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W) & real[:, None] & (k < K)[None, :]
            here = corners + ((q // POOL) * sxh + (q % POOL) * sxw) * STRIDE
            pixels = tl.load(here[:, None] + offsets[None, :], mask=inside, other=0.0).to(w.dtype.element_ty)
            if q == 0:
                acc0 = tl.dot(pixels, taps, acc0)
            elif q == 1:
                acc1 = tl.dot(pixels, taps, acc1)
            elif q == 2:
                acc2 = tl.dot(pixels, taps, acc2)
            else:
                acc3 = tl.dot(pixels, taps, acc3)
    else:
        BLOCKS: tl.constexpr = (C + BK - 1) // BK
        for step in range(KH * KW * BLOCKS):
            tap = step // BLOCKS
            c = (step % BLOCKS) * BK + tl.arange(0, BK)
            known = (o < O)[None, :]
            if C % BK != 0:
                known = known & (c < C)[:, None]
            taps = tl.load(w + tap * (O * C) + (o * C)[None, :] + c[:, None], mask=known, other=0.0)
            for q in tl.static_range(Q):
                down, right = tap // KW + (q // POOL) * STRIDE, tap % KW + (q % POOL) * STRIDE
                ih, iw = top + down, left + right
                inside = (real & (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W))[:, None]
                if C % BK != 0:
                    inside = inside & (c < C)[None, :]
                here = corners + (down * sxh + right * sxw)
                pixels = tl.load(here[:, None] + (c * sxc)[None, :], mask=inside, other=0.0).to(w.dtype.element_ty)
                if q == 0:
                    acc0 = tl.dot(pixels, taps, acc0)
                elif q == 1:
                    acc1 = tl.dot(pixels, taps, acc1)
                elif q == 2:
                    acc2 = tl.dot(pixels, taps, acc2)
                else:
                    acc3 = tl.dot(pixels, taps, acc3)
    out = (n * POSITIONS + p)[:, None] * O + o[None, :]
    mask = real[:, None] & (o < O)[None, :]
    most = acc0
    if POOL == 2:
        place = tl.zeros((BM, BN), dtype=tl.int32)
        for q in tl.static_range(1, 4):
            other = acc1
            if q == 2:
                other = acc2
            if q == 3:
                other = acc3
            place = tl.where(other > most, q, place)
            # What is not a number has diverged, which must show.
            most = tl.maximum(most, other, propagate_nan=tl.PropagateNan.ALL)
    if HALVES:
        most = most / (scale(tl.load(largest_x + n)) * scale(tl.load(largest_w + n)))
    if BIAS:
        most += tl.load(b + n * sbn + o, mask=o < O, other=0.0).to(tl.float32)[None, :]
    if POOL == 2:
        if PLACES:
            tl.store(which + out, tl.where(most > 0, place, 4).to(tl.uint8), mask=mask)
        most = tl.where(most < 0, 0.0, most)
    tl.store(y + out, most.to(y.dtype.element_ty), mask=mask)


@triton.jit
def unpool_kernel(
    g, which, full, largest,
    POSITIONS,
    O: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, HALVES: tl.constexpr, BP: tl.constexpr, BO: tl.constexpr,
):  # fmt: skip
    """The gradient before pooling, n × B × 2PH × 2PW × O: g at the place that was largest, 0 at the others.

    HALVES writes it as scaled halves (see `halves`).
    """
    n = tl.program_id(2).to(tl.int64)
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    o = tl.program_id(1) * BO + tl.arange(0, BO)
    mask = (p < POSITIONS)[:, None] & (o < O)[None, :]
    at = (n * POSITIONS + p)[:, None] * O + o[None, :]
    grads = tl.load(g + at, mask=mask, other=0.0)
    if HALVES:
        grads = (grads * scale(tl.load(largest + n))).to(tl.float16)
    place = tl.load(which + at, mask=mask, other=4).to(tl.int32)
    row, column = n * (POSITIONS // PW) + p // PW, p % PW
    for q in tl.static_range(4):
        out = (row * 2 + q // 2) * (2 * PW) + column * 2 + q % 2
        tl.store(full + out[:, None] * O + o[None, :], tl.where(place == q, grads, 0.0), mask=mask)


@triton.jit
def input_gradient_kernel(
    g, w, dx, largest_g, largest_w,
    swo, swc,
    IMAGES,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, O: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr,
    HALVES: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """dx from g, the gradient of the convolution's output (OH × OW of it); w is n × (KH·KW) × O × C in some order.

    With a stride, a pixel (h, v) meets only the taps with the residues of (h + PADDING, v + PADDING). Rows of a tile
    are therefore pixels of one class of residues, and no product is made in vain. Within a class the output that tap
    number (i, j) reaches is (a − i, b − j), with (a, b) the pixel's place in units of the stride.
    """
    CLASSES: tl.constexpr = STRIDE * STRIDE
    AH: tl.constexpr = (H + STRIDE - 1) // STRIDE
    AW: tl.constexpr = (W + STRIDE - 1) // STRIDE
    n = tl.program_id(1).to(tl.int64)
    rh, rw = (tl.program_id(0) % CLASSES) // STRIDE, tl.program_id(0) % STRIDE
    r = (tl.program_id(0) // CLASSES) * BM + tl.arange(0, BM)
    image = r // (AH * AW)
    a = (r // AW) % AH + (PADDING - rh + STRIDE - 1) // STRIDE
    b = r % AW + (PADDING - rw + STRIDE - 1) // STRIDE
    h, v = a * STRIDE + rh - PADDING, b * STRIDE + rw - PADDING
    real = (image < IMAGES) & (h < H) & (v < W)
    c = tl.program_id(2) * BN + tl.arange(0, BN)
    w += n * (C * KH * KW * O)
    corners = g + (((n * IMAGES + image) * OH + a) * OW + b) * O
    columns = (KW - rw + STRIDE - 1) // STRIDE
    taps_here = ((KH - rh + STRIDE - 1) // STRIDE) * columns
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    BLOCKS: tl.constexpr = (O + BK - 1) // BK
    for step in range(taps_here * BLOCKS):
        i, j = (step // BLOCKS) // columns, (step // BLOCKS) % columns
        o = (step % BLOCKS) * BK + tl.arange(0, BK)
        inside = (real & (a >= i) & (a < OH + i) & (b >= j) & (b < OW + j))[:, None]
        known = (c < C)[None, :]
        if O % BK != 0:
            inside = inside & (o < O)[None, :]
            known = known & (o < O)[:, None]
        grads = tl.load((corners - (i * OW + j) * O)[:, None] + o[None, :], mask=inside, other=0.0)
        tap = (rh + i * STRIDE) * KW + rw + j * STRIDE
        taps = tl.load(w + tap * (O * C) + (c * swc)[None, :] + (o * swo)[:, None], mask=known, other=0.0)
        acc = tl.dot(grads.to(w.dtype.element_ty), taps, acc)
    if HALVES:
        acc = acc / (scale(tl.load(largest_g + n)) * scale(tl.load(largest_w + n)))
    out = (((n * IMAGES + image) * H + h) * W + v)[:, None] * C + c[None, :]
    tl.store(dx + out, acc.to(dx.dtype.element_ty), mask=real[:, None] & (c < C)[None, :])
