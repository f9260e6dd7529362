"""Wide convolutions in tf32: their factors become scaled halves in the forward pass, for the backward pass too."""

from __future__ import annotations

import torch
from torch import Tensor

WIDE = 64
"""From this number of channels on, products of halves save more time than the halves take."""

Halved = tuple[Tensor, Tensor, Tensor]
"""Images n × B × H × W × C and weights n × KH × KW × O × C as halves, and the bits of every client's largest absolute
values of both (see `no_largest`). All are empty if there are no halves."""


def is_wide(taps: Tensor) -> bool:
    """Whether a convolution with these weights (n × KH × KW × O × C) is computed with halves in training."""
    return taps.dtype == torch.float32 and min(taps.shape[3:]) >= WIDE


def not_halved(x: Tensor) -> Halved:
    """No halves."""
    none = x.new_empty(0, dtype=torch.float16)
    return none, torch.empty_like(none), x.new_empty(0, dtype=torch.int32)


def halved_like(x: Tensor, taps: Tensor) -> Halved:
    """Memory for the halves of images n × B × C × H × W and of weights."""
    n, B, C, H, W = x.shape
    images = torch.empty(n, B, H, W, C, device=x.device, dtype=torch.float16)
    weights = torch.empty(taps.shape, device=x.device, dtype=torch.float16)
    return images, weights, no_largest(n, x.device)


def no_largest(n: int, device: torch.device) -> Tensor:
    """Two rows of n zeros, for the bits of largest absolute values, and what rounds the rows up to 16 bytes.

    Kernels are compiled for the alignment of their arguments, which must not depend on the number of clients.
    """
    return torch.zeros(2, -(-n // 4) * 4, dtype=torch.int32, device=device)
