r"""Calculus of the negative log-hypervolume $\Phi(\theta) = -\sum_i \log(r_i - f_i(\theta))$.

Its value is `log_hypervolume` and its scale $c(\theta)$ is `inverse_slack_sum`, both in `fedhv.methods.weights`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedhv.methods.weights import Vector, inverse_slack_sum, inverse_slack_weights, log_hypervolume
from fedhv.support.errors import InputError
from fedhv.theory._checks import gradients, positive, positive_vector, safe_losses, vector

Objectives = Callable[[Tensor], Tensor]
"""Parameters, one flat vector, to the m task losses $F(\\theta)$, differentiably."""


def ideal_weights(losses: Vector, reference: Vector) -> np.ndarray:
    r"""The ideal weights $w_i^\star = (r_i - f_i)^{-1} / \sum_j (r_j - f_j)^{-1}$, without a floor."""
    f, r = safe_losses(losses, reference)
    return np.asarray(inverse_slack_weights(f, r, (r - f).min()))


def task_gradients(objectives: Objectives, parameters: Tensor) -> tuple[Tensor, Tensor]:
    r"""The losses $F(\theta)$ and the m × d matrix of their gradients $\nabla f_i(\theta)$, by autograd."""
    theta = parameters.detach().clone().requires_grad_(True)
    f = _evaluate(objectives, theta)
    rows = [torch.autograd.grad(f[i], theta, retain_graph=i + 1 < len(f))[0] for i in range(len(f))]
    return f.detach(), torch.stack(rows)


def gradient_by_autograd(objectives: Objectives, parameters: Tensor, reference: Vector) -> Tensor:
    r"""$\nabla\Phi(\theta)$, differentiating $-\sum_i \log(r_i - f_i(\theta))$ itself."""
    theta = parameters.detach().clone().requires_grad_(True)
    f = _evaluate(objectives, theta)
    safe_losses(f, reference)
    return torch.autograd.grad(log_hypervolume(f, reference), theta)[0]


def gradient_by_identity(task_gradients: Any, losses: Vector, reference: Vector) -> Any:
    r"""$\nabla\Phi(\theta) = c(\theta) \sum_i w_i^\star(\theta)\, \nabla f_i(\theta)$, Eq. (5).

    Args:
        task_gradients: The m × d matrix of $\nabla f_i(\theta)$; the result has its type.
        losses: $F(\theta)$.
        reference: $r$.
    """
    f, r = safe_losses(losses, reference)
    j = gradients(task_gradients, f.size)
    u = inverse_slack_sum(f, r) * ideal_weights(f, r)
    return torch.as_tensor(u).to(j) @ j if isinstance(j, Tensor) else u @ j


def scale_bounds(reference: Vector, margin: float) -> tuple[float, float]:
    r"""$c_{\min} = \sum_i 1/r_i$ and $c_{\max} = m/\rho$, which bound $c(\theta)$, Eq. (54).

    $c_{\min}$ is attained where every loss is zero, $c_{\max}$ where every slack is $\rho$.
    """
    r = _reference_above(reference, margin)
    return float((1 / r).sum()), r.size / margin


def gradient_bounds(smoothness: Vector, reference: Vector) -> np.ndarray:
    r"""$G_i = \sqrt{2 L_i r_i} \ge \|\nabla f_i(\theta)\|$ wherever $f_i(\theta) \le r_i$.

    Lemma A.6, "Self-bounded global gradients": $\|\nabla f_i\|^2 \le 2 L_i f_i \le 2 L_i r_i = G_i^2$. A quadratic
    $\frac{L_i}{2}\|\theta - \theta_0\|^2$ at $f_i = r_i$ attains it.
    """
    r = positive_vector("reference", reference)
    return np.asarray(np.sqrt(2 * vector("smoothness", smoothness, size=r.size, least=0) * r))


def smoothness_constant(smoothness: Vector, reference: Vector, margin: float) -> float:
    r"""The smoothness of $\Phi$ where every slack is at least $\rho$: Lemma A.8.

    $$ L_\Phi(\rho) = \sum_i \frac{L_i}{\rho} + \sum_i \frac{G_i^2}{\rho^2}, \qquad G_i^2 = 2 L_i r_i. $$
    """
    r = _reference_above(reference, margin)
    lips = vector("smoothness", smoothness, size=r.size, least=0)
    return float((lips / margin).sum() + (gradient_bounds(lips, r) ** 2).sum() / margin**2)


def value_lower_bound(reference: Vector) -> float:
    r"""$\Phi_{\rm lb} = -\sum_i \log r_i \le \Phi(\theta)$, Eq. (92), attained at $F = 0$."""
    return float(-np.log(positive_vector("reference", reference)).sum())


def _evaluate(objectives: Objectives, theta: Tensor) -> Tensor:
    f = objectives(theta)
    if f.ndim != 1 or f.numel() == 0:
        raise InputError(
            f"Parameter `objectives` should return one loss per task. Found a result of shape {tuple(f.shape)}."
        )
    return f


def _reference_above(reference: Vector, margin: float) -> np.ndarray:
    r = positive_vector("reference", reference)
    positive("margin", margin)
    if (r < margin).any():
        raise InputError(
            f"Parameter `reference` should be at least the margin {margin}: no slack can be larger than it. "
            f"Found `reference = {r.tolist()}`."
        )
    return r
