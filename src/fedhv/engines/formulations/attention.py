"""Attention inside a stack: in plain operators, because the fused kernels fail or run in a loop under `vmap`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedhv.engines.formulations.calls import StackedCalls


@contextmanager
def mappable_calls(device: torch.device) -> Iterator[None]:
    """In this context, compute what a model calls so that it can be stacked on this device, and recorded there.

    Scaled dot-product attention is computed as matrix products and a softmax.

    On a GPU the flash and memory-efficient kernels raise an error under `vmap`; on a CPU torch loops over the clients.
    The fast path of `nn.TransformerEncoder` and `nn.MultiheadAttention` in evaluation mode has no derivative. Torch
    chooses it under `vmap` because a mapped tensor hides that it needs a gradient. Only the forward pass has to be in
    this context.
    """
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        plain = device.type == "cpu" and not torch.is_autocast_enabled("cpu")
        with sdpa_kernel(SDPBackend.MATH), nullcontext() if plain else StackedCalls(device):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
