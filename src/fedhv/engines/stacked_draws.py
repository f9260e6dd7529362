"""The factor of dropout for a stack of clients as one operator; plain operators take two dozen.

The bits are those of `fedhv.problem.counter`: a hash of the client's key, the draw's number and the element's place. On
a CPU they are hashed by NumPy, on a GPU by a Triton kernel (see `kernels.draws`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedhv.engines.operator import operator
from fedhv.problem.counter import GAMMA, kept, signed
from fedhv.problem.dropout import FAST, keep_bound

MOST_AXES = 5
"""The kernel's limit."""

DEVICES = {"cpu"}
"""The types of devices for which the operator is defined."""


@operator("dropout_factor", devices="CPU")
def dropout_factor(keys: Tensor, first: int, shape: list[int], bound: int, scale: float) -> Tensor:
    """n × shape, float32: `scale` where an element is kept, else 0."""
    return kept([key + first for key in keys.tolist()], 0, shape, bound, scale)


@dropout_factor.register_fake
def _(keys: Tensor, first: int, shape: list[int], bound: int, scale: float) -> Tensor:
    return torch.empty(len(keys), *shape, device=keys.device)


@dropout_factor.register_vmap
def _(
    info: object, in_dims: tuple[int | None, ...], keys: Tensor, first: int, shape: list[int], bound: int, scale: float
) -> tuple[Tensor, int]:
    keys = keys.movedim(in_dims[0] or 0, 0)
    made = dropout_factor(keys.flatten(), first, shape, bound, scale)
    return made.view(*keys.shape, *shape), 0


def _factor(key: Tensor, draw: int, shape: torch.Size, p: float) -> Tensor | None:
    """One client's factor; None if plain operators have to compute it."""
    if key.device.type not in DEVICES or not 0 < len(shape) <= MOST_AXES or not 0 < p < 1:
        return None
    made: Tensor = dropout_factor(key.reshape(1), signed(draw * GAMMA), list(shape), keep_bound(p), 1 / (1 - p))
    return made.squeeze(0)


def install() -> None:
    """From now on, dropout of a stack is drawn by the operator."""
    FAST[:] = [_factor]
