"""What Triton does once in a process before its first kernel, begun early.

It builds its driver with a C compiler and names itself by a checksum, which takes a second. A thread does both while
the model is tried and the data goes to the GPU.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import threading
from contextlib import suppress

import torch


def has_kernels(device: torch.device, precision: str) -> bool:
    """Whether a stack on this device in this precision is computed by the kernels of this package."""
    return device.type == "cuda" and precision != "float32" and importlib.util.find_spec("triton") is not None


def prepare_kernels(device: torch.device, precision: str) -> None:
    """Begin it, if kernels will be needed. Whoever compiles the first one waits for its end."""
    if has_kernels(device, precision):
        _begin(device)


@functools.cache
def _begin(device: torch.device) -> None:
    starting = importlib.import_module("fedhv.engines.kernels.starting")  # here: two threads should not import it

    def prepare() -> None:
        with suppress(Exception):  # it comes again where a kernel is compiled
            starting.Chip.of(device)

    threading.Thread(target=prepare, name="prepare-kernels", daemon=True).start()
