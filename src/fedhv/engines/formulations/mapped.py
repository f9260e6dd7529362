"""A test whether tensors are currently mapped over clients by `vmap`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


def is_mapped(*values: Any) -> bool:
    """Whether one of these tensors, or of their elements, is mapped over clients.

    Outside `vmap`, torch's layers are faster than the formulations and give the bits of the sequential engine.
    """
    leaves = pytree.tree_leaves(values)
    return any(isinstance(leaf, Tensor) and torch._C._functorch.is_batchedtensor(leaf) for leaf in leaves)
