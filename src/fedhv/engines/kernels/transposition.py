"""A convolution's weights in the order in which the kernels read them, and their gradients back, in Triton.

Weights are rows of taps, one for every output and input channel; the kernels want rows of channels, one for every tap.
This is a transposition of a matrix with few columns, which torch's copies do at a quarter of the memory's speed.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def taps_kernel(w, taps, STRIDE, ROWS, K: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr):
    """taps, n × K × ROWS, from w, n × ROWS × K with STRIDE between clients."""
    n = tl.program_id(1).to(tl.int64)
    r, k = tl.program_id(0) * BR + tl.arange(0, BR), tl.arange(0, BK)
    mask = (r < ROWS)[:, None] & (k < K)[None, :]
    values = tl.load(w + n * STRIDE + r[:, None] * K + k[None, :], mask=mask, other=0.0)
    tl.store(taps + n * K * ROWS + r[:, None] + k[None, :] * ROWS, values.to(taps.dtype.element_ty), mask=mask)


@triton.jit
def weights_kernel(parts, dw, ROWS, PARTS, K: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr):
    """dw, n × ROWS × K, the sum of parts, n × PARTS × K × ROWS, in their order."""
    n = tl.program_id(1).to(tl.int64)
    r, k = tl.program_id(0) * BR + tl.arange(0, BR), tl.arange(0, BK)
    mask = (r < ROWS)[:, None] & (k < K)[None, :]
    parts += n * PARTS * K * ROWS
    total = tl.zeros((BR, BK), dtype=tl.float32)
    for part in range(PARTS):
        total += tl.load(parts + part * K * ROWS + r[:, None] + k[None, :] * ROWS, mask=mask, other=0.0)
    tl.store(dw + n * ROWS * K + r[:, None] * K + k[None, :], total, mask=mask)
