"""Sums of the parts of divided sums in Triton, in an order that depends on the number of parts alone.

How many there are depends on the number of clients, and the compiled code does not.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["COUNT"])
def sum_kernel(parts, total, COUNT, SIZE, BP: tl.constexpr, BS: tl.constexpr):
    """total (rows × SIZE) from parts (rows × COUNT × SIZE)."""
    row = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BS + tl.arange(0, BS)
    parts += row * COUNT * SIZE
    sums = tl.zeros((BP, BS), dtype=tl.float32)
    for start in range(0, COUNT, BP):
        part = start + tl.arange(0, BP)
        mask = (part < COUNT)[:, None] & (i < SIZE)[None, :]
        sums += tl.load(parts + part.to(tl.int64)[:, None] * SIZE + i[None, :], mask=mask, other=0.0)
    tl.store(total + row * SIZE + i, tl.sum(sums, axis=0), mask=i < SIZE)
