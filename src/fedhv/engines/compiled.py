"""A function of tensors, traced and compiled once for every shape of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from fedhv.support.errors import caused_by


class Compiled:
    """A function that is traced to plain operators before it is compiled, so that `vmap` and gradients are resolved."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self._function = function
        self._compiled: dict[Hashable, Callable[..., Tensor]] = {}

    def __call__(self, *arguments: Any) -> Tensor:
        """`function(*arguments)`."""
        leaves = pytree.tree_leaves(arguments)
        shape = tuple((tuple(leaf.shape), leaf.dtype) for leaf in leaves)
        if shape not in self._compiled:
            # The trace would treat a bound method's `self` as an argument.
            graph = make_fx(lambda *arguments: self._function(*arguments))(*arguments)
            self._compiled[shape] = torch.compile(graph, dynamic=False)
        try:
            return self._compiled[shape](*arguments)
        except RuntimeError as error:
            # Ctrl-C leaves the compiler in an invalid state, and it then reports another error.
            if caused_by(error, KeyboardInterrupt):
                raise KeyboardInterrupt from None
            raise
