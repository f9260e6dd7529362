"""Attention inside a stack: in plain operators, because the fused kernels fail or run in a loop under `vmap`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


@contextmanager
def mappable_attention() -> Iterator[None]:
    """In this context, compute scaled dot-product attention as matrix products and a softmax.

    On a GPU the flash and memory-efficient kernels raise an error under `vmap`; on a CPU torch loops over the clients.
    The fast path of `nn.TransformerEncoder` and `nn.MultiheadAttention` in evaluation mode has no derivative. Torch
    chooses it under `vmap` because a mapped tensor hides that it needs a gradient. Only the forward pass has to be in
    this context.
    """
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
