"""Convolutions of n clients, each with its own images and weights, as implicit matrix products in Triton.

The libraries' answer to a stack of different kernels is the grouped convolution, which reaches a small part of what
the GPU can do. Here every tile of the output is a product of gathered pixels with one client's weights; a 2×2
maximum and ReLU behind the convolution are taken before anything is written, so that its large output never exists.

Rows of a product are positions, columns are channels. With `POOL` = 2 the rows of one window lie side by side. For
the way back the forward pass notes in `which` the place in its window (0 … 3) that was largest; 4 means that ReLU
let nothing through.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def forward_kernel(
    x, w, b, y, which,
    sxn, sxb, sxc, sxh, sxw,
    POSITIONS,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, O: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr, POOL: tl.constexpr,
    BIAS: tl.constexpr, FLAT: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y = conv(x, w) + b, then the maximum of every window and ReLU where POOL is 2; w is n × (KH·KW) × O × C.

    FLAT takes channels and taps as one axis, for inputs of few channels.
    """
    Q: tl.constexpr = POOL * POOL
    n = tl.program_id(1).to(tl.int64)
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    q, p = r % Q, r // Q
    top = (((p // PW) % PH) * POOL + q // POOL) * STRIDE - PADDING
    left = ((p % PW) * POOL + q % POOL) * STRIDE - PADDING
    real = p < POSITIONS
    o = tl.program_id(2) * BN + tl.arange(0, BN)
    w += n * (C * KH * KW * O)
    corners = x + n * sxn + (p // (PW * PH)).to(tl.int64) * sxb + top * sxh + left * sxw
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    if FLAT:
        K: tl.constexpr = C * KH * KW
        k = tl.arange(0, BK)
        tap, c = k // C, k % C
        ih, iw = top[:, None] + (tap // KW)[None, :], left[:, None] + (tap % KW)[None, :]
        inside = (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W) & real[:, None] & (k < K)[None, :]
        offsets = c * sxc + (tap // KW) * sxh + (tap % KW) * sxw
        pixels = tl.load(corners[:, None] + offsets[None, :], mask=inside, other=0.0).to(w.dtype.element_ty)
        at = (tap * (O * C) + c)[:, None] + (o * C)[None, :]
        taps = tl.load(w + at, mask=(k < K)[:, None] & (o < O)[None, :], other=0.0)
        acc = tl.dot(pixels, taps, acc)
    else:
        BLOCKS: tl.constexpr = (C + BK - 1) // BK
        for step in range(KH * KW * BLOCKS):
            tap = step // BLOCKS
            kh, kw = tap // KW, tap % KW
            c = (step % BLOCKS) * BK + tl.arange(0, BK)
            inside = (real & (top + kh >= 0) & (top + kh < H) & (left + kw >= 0) & (left + kw < W))[:, None]
            known = (o < O)[None, :]
            if C % BK != 0:
                inside = inside & (c < C)[None, :]
                known = known & (c < C)[:, None]
            pixels = tl.load(
                (corners + (kh * sxh + kw * sxw))[:, None] + (c * sxc)[None, :], mask=inside, other=0.0
            ).to(w.dtype.element_ty)
            taps = tl.load(w + tap * (O * C) + (o * C)[None, :] + c[:, None], mask=known, other=0.0)
            acc = tl.dot(pixels, taps, acc)
    if BIAS:
        acc += tl.load(b + n * O + o, mask=o < O, other=0.0).to(tl.float32)[None, :]
    if POOL == 2:
        windows = tl.reshape(acc, (BM // 4, 4, BN))
        # A maximum passes over what is not a number, but what has diverged must show; this is 0 otherwise.
        most = tl.max(windows, axis=1) + tl.sum(tl.where(windows == windows, 0.0, windows), axis=1)
        place = tl.argmax(windows, axis=1)
        p = tl.program_id(0) * (BM // 4) + tl.arange(0, BM // 4)
        out = (n * POSITIONS + p)[:, None] * O + o[None, :]
        mask = (p < POSITIONS)[:, None] & (o < O)[None, :]
        tl.store(y + out, tl.where(most < 0, 0.0, most).to(y.dtype.element_ty), mask=mask)
        tl.store(which + out, tl.where(most > 0, place, 4).to(tl.uint8), mask=mask)
    else:
        out = (n * POSITIONS + p)[:, None] * O + o[None, :]
        tl.store(y + out, acc.to(y.dtype.element_ty), mask=real[:, None] & (o < O)[None, :])


@triton.jit
def unpool_kernel(
    g, which, full,
    POSITIONS,
    O: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, BP: tl.constexpr, BO: tl.constexpr,
):  # fmt: skip
    """The gradient before pooling, n × B × 2PH × 2PW × O: g at the place that was largest, 0 at the others."""
    p = tl.program_id(0).to(tl.int64) * BP + tl.arange(0, BP)
    o = tl.program_id(1) * BO + tl.arange(0, BO)
    mask = (p < POSITIONS)[:, None] & (o < O)[None, :]
    at = p[:, None] * O + o[None, :]
    grads = tl.load(g + at, mask=mask, other=0.0)
    place = tl.load(which + at, mask=mask, other=4).to(tl.int32)
    row, column = p // PW, p % PW
    for q in tl.static_range(4):
        out = (row * 2 + q // 2) * (2 * PW) + column * 2 + q % 2
        tl.store(full + out[:, None] * O + o[None, :], tl.where(place == q, grads, 0.0), mask=mask)


@triton.jit
def input_gradient_kernel(
    g, w, dx,
    swo, swc,
    IMAGES,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, O: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
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
    out = (((n * IMAGES + image) * H + h) * W + v)[:, None] * C + c[None, :]
    tl.store(dx + out, acc.to(dx.dtype.element_ty), mask=real[:, None] & (c < C)[None, :])


@triton.jit
def weight_gradient_kernel(
    g, which, x, dw, db,
    sxn, sxb, sxc, sxh, sxw,
    POSITIONS, SPLITS, STEPS,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, O: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr, POOL: tl.constexpr,
    BIAS: tl.constexpr, MODE: tl.constexpr, BO: tl.constexpr, BN: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """One split's part of dw, n × SPLITS × (KH·KW) × O × C, and of db, n × SPLITS × O.

    The sum over positions is long and its result small: it is divided among SPLITS programs, whose parts are added
    afterwards in a fixed order. Both factors lie across the sum, which tensor cores take from memory in two bytes
    only: MODE "bf16x3" multiplies float32 as three products of bfloat16 halves, closer than tf32 and much faster.
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
    bias = tl.zeros((BO,), dtype=tl.float32)
    for step in range(STEPS):
        p = (split * STEPS + step) * BP + tl.arange(0, BP)
        real = p < POSITIONS
        mask = real[:, None] & (o < O)[None, :]
        entries = p[:, None] * O + o[None, :]
        grads = tl.load(g + entries, mask=mask, other=0.0)
        if POOL > 1:
            place = tl.load(which + entries, mask=mask, other=4).to(tl.int32)
            grads = tl.where(place < 4, grads, 0.0)
        if BIAS:
            bias += tl.sum(grads.to(tl.float32), axis=0)
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
            tl.store(db + part * O + o, bias, mask=o < O)
