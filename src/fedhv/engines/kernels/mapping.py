"""How `vmap` maps an operator that takes its clients as a leading axis: the mapped calls' clients become one axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def alone(result: Tensor) -> Tensor:
    """The result of one client, without the axis of clients.

    For autograd it is no view, which a model may not overwrite (`x += y`); in the backward pass it is one, which
    `result[0]` is not.
    """
    out: Tensor = torch.ops.aten._unsafe_view(result, result.shape[1:])
    return out


def mapped(
    function: type[torch.autograd.Function], size: int, dims: Sequence[int | None], *arguments: Any
) -> tuple[Any, tuple[int, int]]:
    """What `function` gives for the clients of `size` mapped calls at once, and how to divide its first axis again.

    Args:
        function: Takes tensors with an axis of clients, the first argument among them.
        size: How many calls are mapped.
        dims: For every argument the axis of the calls; None where all share it.
        arguments: Tensors; anything else is passed on.
    """

    def stacked(value: Any, dim: int | None) -> Any:
        if not isinstance(value, Tensor):
            return value
        moved = value.expand(size, *value.shape) if dim is None else value.movedim(dim, 0)
        return moved.flatten(0, 1)

    together = [stacked(value, dim) for value, dim in zip(arguments, dims, strict=True)]
    return function.apply(*together), (size, len(together[0]) // size)
