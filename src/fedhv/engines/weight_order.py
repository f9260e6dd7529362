"""The order of a stack's parameters in memory: the weights of a convolution lie as its kernels read them.

θ has these weights as O × C × KH × KW, and the kernels read KH × KW × O × C. A stack keeps its parameters in the order
of the kernels from the first local step to the last, so that weights and their gradients are reordered once in a round
instead of in every step. The model gets views of the shapes that it expects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedhv.problem.parameters import Layout

Axes = tuple[int, ...]


class WeightOrder:
    """Brings parameter vectors into a stack's order and back.

    Only entries within a parameter change places. What is computed entry by entry (update rules, terms of the
    objective, masks of whole parameters) is therefore the same in both orders.

    Args:
        layout: Where each parameter is in θ.
        axes: For some parameters, by name, their axes in the order of the stack; the others stay as they are.
    """

    def __init__(self, layout: Layout, axes: Mapping[str, Axes]) -> None:
        self._layout = layout
        self._axes = [axes.get(name) for name in layout.names]
        self.changes = any(each is not None for each in self._axes)
        """Whether any parameter is reordered."""

    def enter(self, vectors: Tensor) -> Tensor:
        """Vectors whose last axis is θ's, in the order of the stack; anything of another length as it is."""
        return self._moved(vectors, into=True)

    def leave(self, vectors: Tensor) -> Tensor:
        """The same back in the order of θ."""
        return self._moved(vectors, into=False)

    def named(self, theta: Tensor) -> dict[str, Tensor]:
        """The model's parameters, as views of a vector in the order of the stack."""
        parts = torch.split(theta, self._layout.sizes)
        return {
            name: part.view(shape) if axes is None else _view(part, shape, axes)
            for name, part, shape, axes in zip(self._layout.names, parts, self._layout.shapes, self._axes, strict=True)
        }

    def _moved(self, vectors: Tensor, into: bool) -> Tensor:
        if not self.changes or vectors.shape[-1] != self._layout.d:
            return vectors
        moved = vectors.clone(memory_format=torch.contiguous_format)
        sources, targets = (torch.split(each, self._layout.sizes, dim=-1) for each in (vectors, moved))
        for source, target, shape, axes in zip(sources, targets, self._layout.shapes, self._axes, strict=True):
            if axes is not None and into:
                _view(target, shape, axes).copy_(torch.unflatten(source, -1, shape))
            elif axes is not None:
                torch.unflatten(target, -1, shape).copy_(_view(source, shape, axes))
        return moved


def _view(part: Tensor, shape: torch.Size, axes: Axes) -> Tensor:
    """A parameter in its own shape, from numbers (… × size) that lie in the order of the given axes."""
    lead = part.ndim - 1
    lies = torch.unflatten(part, -1, [shape[axis] for axis in axes])
    return lies.permute(*range(lead), *(lead + place for place in _inverse(axes)))


def _inverse(axes: Sequence[int]) -> list[int]:
    return sorted(range(len(axes)), key=lambda place: axes[place])
