"""The stacked convolutions' kernels give the same numbers while other programs use the GPU.

A kernel that reads memory before it is written, or writes what is still being read, can be right alone and wrong when
other programs change its pace. Two other programs multiply matrices and read memory meanwhile. Start NVIDIA's
multi-process service first (`nvidia-cuda-mps-control -d`): without it programs take turns, and kernels never meet.

PYTHONPATH=src python3 benchmarks/gpu_kernels_shared.py
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence

import torch
from gpu_kernels import WORK, as_taps, factors, tensors
from torch import Tensor

from fedhv.engines.kernels import launch, starting
from fedhv.engines.kernels.ahead import compile_all

LAYERS = ("lenet2 x12", "conv1", "conv2 x15", "stage1", "stage2", "stage3", "stage4", "into stage2", "into stage4")
TIMES = 50

OTHERS = """
import torch
a, b = torch.randn(4096, 4096, device="cuda"), torch.randn(2**26, device="cuda")
print("ready", flush=True)
while True:
    for _ in range(20):
        {work}
    torch.cuda.synchronize()
"""


def layer(name: str, bf16: bool) -> dict[str, Callable[[], Sequence[Tensor]]]:
    """A layer's forward and backward pass, as functions without arguments."""
    *sizes, geometry, _ = WORK[name]
    x, w, b = tensors(*sizes, True)
    C = x.shape[2]
    x = x.bfloat16() if bf16 and C > 3 else x
    taps = as_taps(w, bf16)
    y, which, *halves = launch.forward(x, taps, b, geometry, True)
    g = torch.randn_like(y).permute(0, 1, 3, 4, 2).contiguous()
    given = factors(x, taps, *halves)
    return {
        "forward": lambda: launch.forward(x, taps, b, geometry, True),
        "backward": lambda: launch.backward(g, which, *given, True, C >= launch.FEW_CHANNELS, geometry),
    }


def differing(run: Callable[[], Sequence[Tensor]], expected: Sequence[Tensor]) -> tuple[int, float]:
    """How many of the repetitions differ from the expected values, and the largest relative difference."""
    times, largest = 0, 0.0
    for _ in range(TIMES):
        differences = [
            float((got.float() - right.float()).abs().max() / right.float().abs().max().clamp(min=1e-30))
            for got, right in zip(run(), expected, strict=True)
            if right.numel() and not torch.equal(got, right)
        ]
        times += bool(differences)
        largest = max([largest, *differences])
    return times, largest


if __name__ == "__main__":
    with starting.planning() as planned:
        for name in LAYERS:
            for bf16 in (False, True):
                for run in layer(name, bf16).values():
                    run()
    compile_all(dict.fromkeys(planned))
    others = [
        subprocess.Popen([sys.executable, "-c", OTHERS.format(work=work)], stdout=subprocess.PIPE)
        for work in ("a @ a", "b.mul_(1.0001)")
    ]
    try:
        for other in others:
            assert other.stdout is not None
            other.stdout.readline()
        for name in LAYERS:
            for bf16 in (False, True):
                for way, run in layer(name, bf16).items():
                    expected = [t.clone() for t in run()]
                    times, largest = differing(run, expected)
                    label = f"{name} {'bf16' if bf16 else 'tf32'} {way}"
                    print(f"{label:28s} differed {times} of {TIMES} times, by {largest:.0e} at most", flush=True)
    finally:
        for other in others:
            other.kill()
