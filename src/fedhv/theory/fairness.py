r"""The reference-dependent Nash-welfare surrogate $\Psi = -\Phi$ and local proportional fairness."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedhv.methods.weights import Vector, log_hypervolume
from fedhv.support.errors import InputError
from fedhv.theory._checks import array, gradients, nonnegative, safe_losses
from fedhv.theory.hypervolume import gradient_by_identity


def nash_welfare(losses: Vector, reference: Vector) -> float:
    r"""$\Psi(\theta) = \sum_i \log s_i(\theta) = -\Phi(\theta)$, Eq. (40)."""
    return float(-log_hypervolume(*safe_losses(losses, reference)))


def proportional_fairness_gap(gradient: Any, feasible: Any | None = None) -> float:
    r"""PFgap: the largest first-order gain in $\Psi$ along a feasible unit direction: Definition A.27.

    $$ \mathrm{PFgap}(\theta)
       = \sup_{d \in T_\Theta(\theta),\, \|d\| \le 1} \langle \nabla\Psi(\theta), d \rangle
       \le \|\nabla\Phi(\theta)\|. $$

    Args:
        gradient: $\nabla\Phi(\theta)$ or $\nabla\Psi(\theta)$: the sign makes no difference on a linear space.
        feasible: Rows that span the tangent space, if parameters are constrained (for example frozen layers).
            Without it every direction is feasible and the gap equals the norm, Lemma A.28.
    """
    g = array(gradient)
    if feasible is None:
        return float(np.linalg.norm(g))
    directions = np.atleast_2d(array(feasible))
    if directions.shape[1] != g.size:
        raise InputError(
            f"Parameter `feasible` should hold directions of length {g.size}. "
            f"Found `feasible` of shape {directions.shape}."
        )
    _, singular, basis = np.linalg.svd(directions, full_matrices=False)
    basis = basis[singular > max(directions.shape) * np.finfo(np.float64).eps * singular.max(initial=0)]
    return float(np.linalg.norm(basis @ g))


def relative_slack_change(task_gradients: Any, losses: Vector, reference: Vector, direction: Vector) -> float:
    r"""First-order change in aggregate relative slack, $\sum_i \langle \nabla s_i, d \rangle / s_i$.

    Lemma A.34, "First-order proportional fairness": at most zero along every feasible direction at a stationary
    point. It equals $\langle \nabla\Psi, d \rangle = -\langle \nabla\Phi, d \rangle$.
    """
    gradient = array(gradient_by_identity(gradients(task_gradients), losses, reference))
    return float(-gradient @ array(direction))


def expected_fairness_gap_bound(mean_squared_gradient: float) -> float:
    r"""$\mathbb E[\mathrm{PFgap}(\theta^{t^\star})] \le (\min_t \mathbb E\|\nabla\Phi(\theta^t)\|^2)^{1/2}$.

    Corollary A.29. The minimum over rounds is at most their mean, so the mean, or the bound of Theorem A.22, may be
    used instead.
    """
    return float(np.sqrt(nonnegative("mean_squared_gradient", mean_squared_gradient)))
