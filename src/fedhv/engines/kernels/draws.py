"""The factor of dropout for a stack of clients in one Triton kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedhv.engines.stacked_draws import DEVICES, MOST_AXES, dropout_factor
from fedhv.problem.counter import GAMMA, signed

BLOCK = 1024


@triton.jit
def factor_kernel(
    keys, factor,
    FIRST, BOUND, SCALE, SIZE,
    D0, D1, D2, D3, D4,
    AXES: tl.constexpr, G: tl.constexpr, A: tl.constexpr, B: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """SCALE where the hash is at least BOUND, else 0; n × SIZE, of which the last AXES of D0 … D4 are the axes."""
    n = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(keys + n) + FIRST + tl.zeros((BLOCK,), dtype=tl.int64)
    left = SIZE
    rest = i
    for axis in tl.static_range(5):
        if axis >= 5 - AXES:
            size = D0
            if axis == 1:
                size = D1
            if axis == 2:
                size = D2
            if axis == 3:
                size = D3
            if axis == 4:
                size = D4
            left = left // size
            word = (word + (rest // left).to(tl.int64)) * G
            rest = rest % left
    word = (word ^ ((word >> 30) & 0x3FFFFFFFF)) * A
    word = (word ^ ((word >> 27) & 0x1FFFFFFFFF)) * B
    word = word ^ ((word >> 31) & 0x1FFFFFFFF)
    tl.store(factor + n * SIZE + i, tl.where(word >= BOUND, SCALE, 0.0), mask=i < SIZE)


@dropout_factor.register_kernel("cuda")
def _(keys: Tensor, first: int, shape: list[int], bound: int, scale: float) -> Tensor:
    made = torch.empty(len(keys), *shape, device=keys.device)
    size = made[0].numel()
    if size:
        axes = [1] * (MOST_AXES - len(shape)) + shape
        factor_kernel[(-(-size // BLOCK), len(keys))](
            keys.contiguous(), made, first, bound, scale, size, *axes,
            AXES=len(shape), G=signed(GAMMA), A=signed(0xBF58476D1CE4E5B9), B=signed(0x94D049BB133111EB), BLOCK=BLOCK,
        )  # fmt: skip
    return made


DEVICES.add("cuda")
