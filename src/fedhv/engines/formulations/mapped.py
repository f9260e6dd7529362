"""Whether tensors are mapped over clients by `vmap` at the moment."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


def is_mapped(*values: Any) -> bool:
    """Whether any tensor among these, or among their elements, is that of several clients.

    Outside of `vmap` torch's own layers are faster than their formulations, and give the sequential engine's bits.
    """
    leaves = pytree.tree_leaves(values)
    return any(isinstance(leaf, Tensor) and torch._C._functorch.is_batchedtensor(leaf) for leaf in leaves)
