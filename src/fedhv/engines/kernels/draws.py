"""The factor of dropout for a stack of clients in one Triton kernel; plain operators take two dozen.

The bits are those of `fedhv.problem.counter`: a hash of the client's key, the draw's number and the element's place.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedhv.problem.counter import GAMMA, signed
from fedhv.problem.dropout import FAST

BLOCK = 1024
MOST_AXES = 5


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


@torch.library.custom_op("fedhv::dropout_factor", mutates_args=())
def dropout_factor(keys: Tensor, first: int, shape: list[int], bound: int, scale: float) -> Tensor:
    """n × shape, float32: `scale` where an element is kept, else 0."""
    made = torch.empty(len(keys), *shape, device=keys.device)
    size = made[0].numel()
    if size:
        axes = [1] * (MOST_AXES - len(shape)) + shape
        factor_kernel[(-(-size // BLOCK), len(keys))](
            keys.contiguous(), made, first, bound, scale, size, *axes,
            AXES=len(shape), G=signed(GAMMA), A=signed(0xBF58476D1CE4E5B9), B=signed(0x94D049BB133111EB), BLOCK=BLOCK,
        )  # fmt: skip
    return made


@dropout_factor.register_fake
def _(keys: Tensor, first: int, shape: list[int], bound: int, scale: float) -> Tensor:
    return torch.empty(len(keys), *shape, device=keys.device)


@dropout_factor.register_vmap
def _(
    info: object, in_dims: tuple[int | None, ...], keys: Tensor, first: int, shape: list[int], bound: int, scale: float
) -> tuple[Tensor, int]:
    keys = keys.movedim(in_dims[0] or 0, 0)
    made = dropout_factor(keys.flatten(), first, shape, bound, scale)
    return made.view(*keys.shape, *shape), 0


def _factor(key: Tensor, draw: int, shape: torch.Size, p: float) -> Tensor | None:
    """One client's factor; None if plain operators have to compute it."""
    if key.device.type != "cuda" or not 0 < len(shape) <= MOST_AXES or not 0 < p < 1:
        return None
    made: Tensor = dropout_factor(
        key.reshape(1), signed(draw * GAMMA), list(shape), round(p * 2**64) - 2**63, 1 / (1 - p)
    )
    return made.squeeze(0)


def install() -> None:
    """From now on, dropout of a stack on a GPU is drawn by the kernel."""
    FAST[:] = [_factor]
