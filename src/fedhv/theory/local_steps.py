r"""One round of local SGD with frozen weights: the lemmas between the assumptions and the theorem."""

from __future__ import annotations

import math

from fedhv.theory._checks import nonnegative, whole
from fedhv.theory.constants import ProblemConstants, StepSizes
from fedhv.theory.weight_map import attained_weight_lipschitz, weight_lipschitz

LOCAL_LIMIT = 1 / 4
"""$c_1$ of Assumption A.9, "Stepsizes"."""
EFFECTIVE_LIMIT = 1 / 48
"""$c_2$ of Assumption A.9, "Stepsizes"."""


def virtual_deviation_bound(problem: ProblemConstants, steps: StepSizes, step: int) -> float:
    r"""Mean squared distance of local iterates from the virtual trajectory after s steps.

    $$ D_{t,s} \le 4 \eta_\ell^2 s^2 Q, \qquad Q = \zeta^2 + \Sigma^2, $$

    Lemma A.30, "Virtual-trajectory deviation", for $\eta_\ell L_w K \le 1/4$.
    """
    s = whole("step", step, least=0, most=steps.local_steps)
    return 4.0 * (steps.local_lr * s) ** 2 * (problem.dissimilarity + problem.noise)


def drift_bias_bound(problem: ProblemConstants, steps: StepSizes) -> float:
    r"""$\|b_t\| \le \frac12 L_w \eta_\ell^2 \bar G\, K(K-1)$: Lemma A.31. Zero for $K = 1$."""
    k = steps.local_steps
    return problem.total_smoothness * steps.local_lr**2 * math.sqrt(problem.drift_gradient) * k * (k - 1) / 2


def update_second_moment_bound(
    problem: ProblemConstants, steps: StepSizes, gradient_norm: float, *, orthogonal_gradients: bool = False
) -> float:
    r"""The size of the averaged update: Lemma A.32, "Second moment of the averaged update".

    $$ \mathbb E\|\Delta^t\|^2 \le 6\eta_\ell^2K^2\|\nabla L_{w^t}(\theta^t)\|^2
       + 3\eta_\ell^2K\kappa_M\Sigma^2 + 6\eta_\ell^2K^2\mathcal H_N
       + \tfrac12 L_w^2\bar G^2\,\eta_\ell^4K^2(K-1)(2K-1). $$

    Args:
        problem: The problem.
        steps: The step sizes.
        gradient_norm: $\|\nabla L_{w^t}(\theta^t)\|$.
        orthogonal_gradients: Gradient noises of different clients are uncorrelated (CCO-grad), which makes
            $\kappa_M = 1/M$ instead of one.
    """
    gradient = nonnegative("gradient_norm", gradient_norm)
    return steps.local**2 * _squared_step(problem, steps, gradient, orthogonal_gradients)


def movement_factor(problem: ProblemConstants, steps: StepSizes, *, orthogonal_gradients: bool = False) -> float:
    r"""$\mathcal V$ of Eq. (35).

    $$ \mathcal V = 6G_{\max}^2 + 3\frac{\Sigma^2}{K} + 6\mathcal H_N(p;\zeta)
       + \frac{L_w^2\bar G^2}{2}\eta_\ell^2(K-1)(2K-1). $$

    With uncorrelated client noise (CCO-grad) the second term is divided by $M$; $\bar G$, which bounds single
    clients, is not.
    """
    return _squared_step(problem, steps, problem.largest_gradient, orthogonal_gradients)


def movement_bound(problem: ProblemConstants, steps: StepSizes, *, orthogonal_gradients: bool = False) -> float:
    r"""$\mathbb E\|\theta^{t+1} - \theta^t\|^2 \le \eta_{\rm eff}^2 \mathcal V$, Eq. (76)."""
    factor = movement_factor(problem, steps, orthogonal_gradients=orthogonal_gradients)
    return steps.effective**2 * factor


def stale_gradient_bound(
    problem: ProblemConstants,
    steps: StepSizes,
    report_error: float,
    *,
    orthogonal_gradients: bool = False,
    attained_lipschitz: bool = False,
) -> float:
    r"""The error of the direction due to stale, estimated weights, Eq. (77), for $t \ge 1$.

    $$ \mathbb E\|e_t\|^2 \le 2G_{\max}^2C^2\,\Xi_{\rm loss,T} + 2G_{\max}^4C^2\,\eta_{\rm eff}^2\mathcal V,
       \qquad C = 2/\rho_{\rm clip}. $$

    In the first round $\|e_0\|^2 \le 4G_{\max}^2$, `initial_gradient_bound`.
    """
    xi = nonnegative("report_error", report_error)
    g2 = problem.largest_gradient**2
    moved = g2 * movement_bound(problem, steps, orthogonal_gradients=orthogonal_gradients)
    return 2 * g2 * lipschitz(problem, attained=attained_lipschitz) ** 2 * (xi + moved)


def initial_gradient_bound(problem: ProblemConstants) -> float:
    r"""$\|e_0\|^2 \le 4G_{\max}^2$, the first round's uniform weights."""
    return 4 * problem.largest_gradient**2


def largest_effective_step(problem: ProblemConstants) -> float:
    r"""$\bar\eta_{\rm eff} = c_2 c_{\min}^2 / (c_{\max} L_\Phi)$ with $c_2 = 1/48$: Assumption A.9."""
    return EFFECTIVE_LIMIT * problem.scale_min**2 / (problem.scale_max * problem.hypervolume_smoothness)


def weight_error_factor(problem: ProblemConstants) -> float:
    r"""$E_{\rm wt} = c_{\max} + 6L_\Phi\bar\eta_{\rm eff}$: Theorem A.22."""
    return problem.scale_max + 6 * problem.hypervolume_smoothness * largest_effective_step(problem)


def one_round_change_bound(
    problem: ProblemConstants,
    steps: StepSizes,
    squared_gradient: float,
    squared_weight_error: float,
    *,
    orthogonal_gradients: bool = False,
) -> float:
    r"""One round's descent: a bound on $\mathbb E[\Phi(\theta^{t+1})] - \Phi(\theta^t)$, Eq. (86).

    $$ -\frac{\eta_{\rm eff}}{4c_{\max}}\|\nabla\Phi\|^2 + E_{\rm wt}\,\eta_{\rm eff}\|e_t\|^2
       + \eta_g\frac{c_{\max}}{\eta_\ell K}\|b_t\|^2
       + \frac{L_\Phi}{2}\eta_g^2\Big(3\eta_\ell^2K\Sigma^2 + 6\eta_\ell^2K^2\mathcal H_N
       + \frac{L_w^2\bar G^2}{2}\eta_\ell^4K^2(K-1)(2K-1)\Big), $$

    with $\|b_t\|$ at its bound. It needs the step-size conditions.

    Args:
        problem: The problem.
        steps: The step sizes.
        squared_gradient: $\|\nabla\Phi(\theta^t)\|^2$.
        squared_weight_error: $\|e_t\|^2$.
        orthogonal_gradients: As in `update_second_moment_bound`.
    """
    gradient = nonnegative("squared_gradient", squared_gradient)
    error = nonnegative("squared_weight_error", squared_weight_error)
    eta, c = steps.effective, problem.scale_max
    bias = steps.server_lr * c / steps.local * drift_bias_bound(problem, steps) ** 2
    spread = eta**2 * _squared_step(problem, steps, 0.0, orthogonal_gradients)
    return (
        -eta / (4 * c) * gradient
        + weight_error_factor(problem) * eta * error
        + bias
        + problem.hypervolume_smoothness / 2 * spread
    )


def lipschitz(problem: ProblemConstants, *, attained: bool = False) -> float:
    r"""$C(\rho_{\rm clip}, r)$: the lemma's $2/\rho_{\rm clip}$, or the attained $1/\rho_{\rm clip}$."""
    return (attained_weight_lipschitz if attained else weight_lipschitz)(problem.rho_clip)


def _squared_step(problem: ProblemConstants, steps: StepSizes, gradient: float, orthogonal: bool) -> float:
    r"""The bound on $\mathbb E\|\Delta^t\|^2$ in units of $\eta_\ell^2K^2$."""
    kappa = 1 / problem.cohort if orthogonal else 1.0
    return (
        6 * gradient**2
        + 3 * kappa * problem.noise / steps.local_steps
        + 6 * problem.participation_heterogeneity
        + problem.total_smoothness**2 * problem.drift_gradient / 2 * steps.drift
    )
