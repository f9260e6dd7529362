r"""Distance from Pareto stationarity: Corollary A.25, "Quantitative approximate Pareto stationarity"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from fedhv.methods.minnorm import min_norm_weights
from fedhv.methods.weights import Vector, inverse_slack_sum
from fedhv.theory._checks import array, gradients, nonnegative, positive_vector, safe_losses


@dataclass(frozen=True)
class ParetoResidual:
    r"""$\mathcal P(\theta)$ and the weights $\lambda^\star$ that attain it."""

    value: float
    weights: np.ndarray


def pareto_residual(task_gradients: Any) -> ParetoResidual:
    r"""The Pareto-stationarity residual, exactly, for any number of tasks: Corollary A.25.

    $$ \mathcal P(\theta) = \min_{\lambda \in \Delta_m} \Big\| \sum_i \lambda_i \nabla f_i(\theta) \Big\|. $$

    Args:
        task_gradients: The m × d matrix of $\nabla f_i(\theta)$.
    """
    j = gradients(task_gradients)
    if isinstance(j, Tensor):
        j = j.detach().double()
    size = float(abs(j).max()) if j.shape[1] else 0.0
    if size == 0:
        return ParetoResidual(0.0, np.full(len(j), 1 / len(j)))
    j = j / size  # squares neither overflow nor vanish
    gram = array(j @ j.T)
    weights = min_norm_weights(gram)
    # The norm of the combination itself keeps the digits that the square root of λᵀGλ would lose near zero.
    combination = array(sum(float(w) * row for w, row in zip(weights, j, strict=True)))
    return ParetoResidual(size * float(np.linalg.norm(combination)), weights)


def residual_bound(gradient_norm: float, losses: Vector, reference: Vector) -> float:
    r"""$\mathcal P(\theta) \le \|\nabla\Phi(\theta)\| / c(\theta)$, Eq. (38).

    Equality where the ideal weights solve the min-norm problem, as for one task and at stationary points.
    """
    return nonnegative("gradient_norm", gradient_norm) / float(inverse_slack_sum(*safe_losses(losses, reference)))


def uniform_residual_bound(gradient_norm: float, reference: Vector) -> float:
    r"""Without the losses: $\mathcal P(\theta) \le \|\nabla\Phi(\theta)\| / c_{\min}$, $c_{\min} = \sum_i 1/r_i$."""
    return nonnegative("gradient_norm", gradient_norm) / _scale_min(reference)


def mean_squared_residual_bound(mean_squared_gradient: float, reference: Vector) -> float:
    r"""The averaged form, Eq. (39).

    $$ \frac1T\sum_t \mathbb E[\mathcal P(\theta^t)^2]
       \le \frac{1}{c_{\min}^2 T}\sum_t \mathbb E\|\nabla\Phi(\theta^t)\|^2. $$
    """
    return nonnegative("mean_squared_gradient", mean_squared_gradient) / _scale_min(reference) ** 2


def single_objective_bound(gradient_norm: float, reference: float) -> float:
    r"""For one task $\|\nabla f_1(\theta)\| \le r_1 \|\nabla\Phi(\theta)\|$: Corollary A.26."""
    return uniform_residual_bound(gradient_norm, [reference])


def _scale_min(reference: Vector) -> float:
    return float((1 / positive_vector("reference", reference)).sum())
