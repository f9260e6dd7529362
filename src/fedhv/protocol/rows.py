"""Several tensors as the rows of one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def rows(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors as the rows of one tensor. Nothing is copied if they are adjacent in memory, as in a stack."""
    first, base = tensors[0], tensors[0]._base
    start, size = first.storage_offset(), first.numel()
    if base is not None and all(
        t._base is base and t.storage_offset() == start + i * size and t.shape == first.shape and t.is_contiguous()
        for i, t in enumerate(tensors)
    ):
        return first.as_strided((len(tensors), *first.shape), (size, *first.stride()))
    return torch.stack(list(tensors))
