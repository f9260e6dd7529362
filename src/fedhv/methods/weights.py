r"""Log-hypervolume weighting (Section 3.2 of the paper): slacks, inverse-slack weights and their objective.

These functions can be used in any training loop:

    weights = inverse_slack_weights(losses, reference)
    loss = (weights * torch.stack(task_losses)).sum()

All functions take NumPy arrays, torch tensors or plain sequences whose last axis is the task, and return the same
kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedhv.support.errors import InputError

Vector = Any
"""Losses, references or weights: an array, a tensor or a sequence whose last axis is the task."""


def slacks(losses: Vector, reference: Vector) -> Any:
    r"""Reference-relative slacks $s_i = r_i - f_i$."""
    f, r = _pair(losses, reference)
    s = r - f  # in the higher of the two precisions
    return s.to(f.dtype) if isinstance(s, Tensor) else s.astype(f.dtype)


def inverse_slack_weights(
    losses: Vector, reference: Vector, floor: float = 1e-6, preferences: Sequence[float] | None = None
) -> Any:
    r"""The stabilised weights $W_{\rho}(f; r)$ of the paper, Eq. (8).

    $$ \hat s_i = \max\{r_i - f_i, \rho\}, \qquad w_i = \hat s_i^{-1} \big/ \sum_j \hat s_j^{-1}. $$

    The weights are positive and sum to one; tasks closer to their reference have larger weights. The weights are
    constants: no gradient flows through them.

    Args:
        losses: The task losses $f$; must be finite.
        reference: The reference losses $r$, one per task.
        floor: The slack floor $\rho$ (`ρ_clip`). It keeps the weights finite when a loss exceeds its reference.
        preferences: $p$, for $w_i \propto p_i / \hat s_i$, the weights of $-\sum_i p_i \log(r_i - f_i)$. They are not
            negative, and only their ratios matter. None means equal preferences.

    Examples:
        >>> fedhv.inverse_slack_weights([0.5, 1.5], [2.5, 2.5]).round(2).tolist()
        [0.33, 0.67]
    """
    if not floor > 0 or not np.isfinite(floor):
        raise InputError(f"Parameter `floor` should be positive and finite. Found `floor = {floor}`.")
    f, r = _pair(losses, reference)
    if isinstance(f, Tensor):
        s = (r.detach().double() - f.detach().double()).clamp(min=floor)
        # Dividing by the smallest slack first keeps every term in (0, 1] at any scale, and equal slacks give exactly
        # 1/m.
        inverse = s.amin(dim=-1, keepdim=True) / s
        if preferences is not None:
            inverse = inverse * torch.as_tensor(preferences, dtype=torch.float64, device=s.device)
        return (inverse / inverse.sum(dim=-1, keepdim=True)).to(f.dtype)
    s = np.maximum(r.astype(np.float64) - f.astype(np.float64), floor)
    inverse = s.min(axis=-1, keepdims=True) / s
    if preferences is not None:
        inverse = inverse * np.asarray(preferences, dtype=np.float64)
    return (inverse / inverse.sum(axis=-1, keepdims=True)).astype(f.dtype)


def capped_weights(weights: Tensor, cap: float) -> Tensor:
    r"""The nearest weights in relative entropy that do not exceed the cap: $w_i' = \min\{\lambda w_i, c\}$.

    The excess goes to the other tasks in proportion, with $\lambda \ge 1$ such that the sum is one. Needs
    $c \ge 1/m$.
    """
    m = len(weights)
    if not cap * m >= 1 - 1e-12:
        raise InputError(f"Parameter `cap` should be at least 1/m = {1 / m:.4g}. Found `cap = {cap}`.")
    w = weights.double()
    full = torch.zeros(m, dtype=torch.bool)
    for _ in range(m):
        room = 1 - cap * int(full.sum())
        rest = w[~full].sum()
        # Weights of zero have no proportions; they get equal shares.
        shares = w / rest if rest > 0 else torch.full_like(w, 1 / int((~full).sum()))
        scaled = torch.where(full, cap, room * shares)
        over = (scaled > cap) & ~full
        if not bool(over.any()):
            return scaled.to(weights.dtype)
        full |= over
        if bool(full.all()):
            break
    return torch.full_like(weights, 1 / m)


def log_hypervolume(losses: Vector, reference: Vector) -> Any:
    r"""The negative log-hypervolume $\Phi = -\sum_i \log(r_i - f_i)$, Eq. (3) of the paper.

    Differentiable in the losses. Every slack must be positive.
    """
    s = _positive_slacks(losses, reference)
    return -(torch.log(s).sum(dim=-1) if isinstance(s, Tensor) else np.log(s).sum(axis=-1))


def inverse_slack_sum(losses: Vector, reference: Vector) -> Any:
    r"""The scale $c(\theta) = \sum_j (r_j - f_j)^{-1}$ in $\nabla\Phi = c \sum_i w_i^\star \nabla f_i$."""
    s = _positive_slacks(losses, reference)
    return (1 / s).sum(-1)


def _positive_slacks(losses: Vector, reference: Vector) -> Any:
    s = slacks(losses, reference)
    if not bool((s > 0).all()):
        raise InputError(
            "The log-hypervolume needs every loss below its reference. "
            f"Found slacks {np.asarray(s.detach().cpu() if isinstance(s, Tensor) else s).tolist()}."
        )
    return s


def _pair(losses: Vector, reference: Vector) -> tuple[Any, Any]:
    """Both arguments as arrays of one kind, each in its own precision, checked."""
    f, r = _floating(losses), _floating(reference)
    if isinstance(f, Tensor) or isinstance(r, Tensor):
        device = f.device if isinstance(f, Tensor) else r.device
        f, r = (torch.as_tensor(v, device=device) for v in (f, r))
    if f.ndim == 0 or r.ndim == 0 or f.shape[-1] == 0 or f.shape[-1] != r.shape[-1] or not _fit(f.shape, r.shape):
        raise InputError(
            "Parameters `losses` and `reference` should hold one number per task, at least one. "
            f"Found shapes {tuple(f.shape)} and {tuple(r.shape)}."
        )
    for name, value in (("losses", f), ("reference", r)):
        finite = torch.isfinite(value) if isinstance(value, Tensor) else np.isfinite(value)
        if not bool(finite.all()):
            raise InputError(f"Parameter `{name}` should be finite. Found `{name} = {value.tolist()}`.")
    return f, r


def _fit(one: Any, other: Any) -> bool:
    try:
        np.broadcast_shapes(tuple(one), tuple(other))
    except ValueError:
        return False
    return True


def _floating(value: Vector) -> Any:
    if isinstance(value, Tensor):
        return value if value.is_floating_point() else value.double()
    array = np.asarray(value)
    return array if np.issubdtype(array.dtype, np.floating) else array.astype(np.float64)
