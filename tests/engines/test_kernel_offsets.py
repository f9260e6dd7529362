"""Kernels where one client has more than 2³¹ numbers: offsets of 32 bits would be negative there.

The large tensors are files that are nearly empty. Triton's interpreter computes a few programs, which touch few pages.
"""

from __future__ import annotations

import importlib.util

import pytest
import torch
from triton_interpreter import interpreted

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU kernels are not interpreted"),
]

LARGE = """
import torch
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder
GridExecutor._restore_args_dev = lambda *_: None  # it would write every page of a tensor onto itself
numbers = iter(range(100))

def large(*shape, dtype=torch.float32):
    size = torch.Size(shape).numel()
    return torch.from_file(f"{FOLDER}/{next(numbers)}", shared=True, size=size, dtype=dtype).view(shape)

"""

SUMS = """
from fedhv.engines.kernels.depthwise_kernels import depthwise_weight_kernel
from fedhv.engines.kernels.weight_gradients import column_gradient_kernel, tap_gradient_kernel
WIDE, SPLITS, BP = 2**26, 3, 16  # the last split begins at 2**31
torch.manual_seed(0)
g, few = large(SPLITS, BP, WIDE, dtype=torch.float16), torch.randn(SPLITS, BP, 16).half()
g[:, :, :16] = few
x = torch.randn(SPLITS, BP, 1)
one = dict(H=1, W=1, KH=1, KW=1, STRIDE=1, PADDING=0, BIAS=True, BP=BP)
counts = SPLITS * BP, SPLITS, 1

def check(kernel, before, between, expected, **constants):
    dw, db = large(SPLITS, WIDE), large(SPLITS, WIDE)
    kernel[(SPLITS, 1, 1)](*before, dw, db, *between, *counts, **one, **constants)
    torch.testing.assert_close(dw[:, :16], expected.sum(dim=1), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(db[:, :16], few.float().sum(dim=1), rtol=1e-2, atol=1e-2)

products = few.float() * x
sizes = dict(C=1, O=WIDE, BO=16)
check(
    tap_gradient_kernel, (g, x.half()), (g, g), products, OH=1, OW=1, HALVES=False, TAPS=1, BC=16, **sizes
)
check(
    column_gradient_kernel, (g, g, x), (1, 1, 1, 1, 1), products, PH=1, PW=1, POOL=1, MODE="tf32", BN=16, **sizes
)
check(depthwise_weight_kernel, (g, g), (), few.float() ** 2, C=WIDE, OH=1, OW=1, DILATION=1, BC=16)
"""

HALVES = """
from fedhv.engines.kernels.halves import halve_kernel, largest_kernel
BLOCK = 4096
SIZE, START = 2**31 + BLOCK, 2**31
place = InterpreterBuilder.set_grid_idx
InterpreterBuilder.set_grid_idx = lambda self, x, y, z: place(self, x, y, z) or setattr(
    self, "grid_idx", (START // BLOCK, y, z)
)
x, halves, largest = large(SIZE), large(SIZE, dtype=torch.float16), torch.zeros(4, dtype=torch.int32)
x[START + 7] = -3.0
largest_kernel[(1, 1)](x, largest, SIZE, SIZE, BLOCK=BLOCK // 4, BLOCKS=4)
assert largest.view(torch.float32)[0] == 3.0
halve_kernel[(1, 1)](x, largest, halves, SIZE, SIZE, BLOCK=BLOCK)
assert halves[START + 7] == -3.0 * 2**13
"""


@pytest.mark.parametrize("code", [SUMS, HALVES], ids=["sums", "halves"])
def test_offsets_of_more_than_32_bits(code, tmp_path):
    interpreted(f"FOLDER = {str(tmp_path)!r}\n" + LARGE + code)


@pytest.mark.parametrize("positions", [10, 2**20, 2**31 - 64])
def test_a_program_counts_its_gradients_in_32_bits(positions):
    from fedhv.engines.kernels.launch import _splits

    for width in (1, 64, 2000):
        for wanted in (0, 1, 500):
            splits, steps = _splits(wanted, positions, 64, width)
            assert splits * steps * 64 >= positions
            assert steps * 64 * width < 2**31
    assert _splits(7, 64 * 800, 64, 64) == (7, 115)
