r"""The convergence theorem, every constant explicit: Theorem A.22, Corollary A.24."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from fedhv.support.errors import InputError
from fedhv.theory._checks import nonnegative, positive, whole
from fedhv.theory.constants import ProblemConstants, StepSizes
from fedhv.theory.local_steps import (
    LOCAL_LIMIT,
    largest_effective_step,
    lipschitz,
    movement_factor,
    weight_error_factor,
)


@dataclass(frozen=True)
class ExplicitConstants:
    r"""The constants $A_1, \ldots, A_7$: none depends on $T$, $N$, $p$, $\eta_\ell$, $\eta_g$ or $K$."""

    a1: float
    a2: float
    a3: float
    a4: float
    a5: float
    a6: float
    a7: float


@dataclass(frozen=True)
class BoundTerms:
    r"""The seven terms of Eq. (34), in its order.

    Attributes:
        initial_gap: $A_1\Delta_\Phi/(\eta_{\rm eff}T)$.
        gradient_noise: $A_2\,\eta_{\rm eff}\Sigma^2$.
        participation: $A_3\,\eta_{\rm eff}\mathcal H_N(p;\zeta)$; zero under full participation.
        local_drift: $A_4\,\eta_\ell^2(K-1)(2K-1)$; zero for one local step.
        report_error: $A_5\,\Xi_{\rm loss,T}$, the neighbourhood that does not shrink with the horizon.
        staleness: $A_6\,\eta_{\rm eff}^2\mathcal V$.
        initial_weights: $A_7/T$.
    """

    initial_gap: float
    gradient_noise: float
    participation: float
    local_drift: float
    report_error: float
    staleness: float
    initial_weights: float

    @property
    def total(self) -> float:
        r"""The bound on $\frac1T\sum_t\mathbb E\|\nabla\Phi(\theta^t)\|^2$, and so on its smallest summand."""
        return math.fsum(self.as_dict().values())

    def as_dict(self) -> dict[str, float]:
        """The terms by name, in order."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class StepConditions:
    r"""Both step sizes and their limits, Eq. (22).

    Attributes:
        local: $\eta_\ell K$.
        local_limit: $c_1/L_w$, $c_1 = 1/4$.
        effective: $\eta_{\rm eff}$.
        effective_limit: $\bar\eta_{\rm eff} = c_2c_{\min}^2/(c_{\max}L_\Phi)$, $c_2 = 1/48$.
    """

    local: float
    local_limit: float
    effective: float
    effective_limit: float

    @property
    def hold(self) -> bool:
        """Whether the steps satisfy the theorem's conditions."""
        return not self.violations

    @property
    def violations(self) -> tuple[str, ...]:
        """The conditions that fail, in words."""
        # A step chosen equal to its limit may exceed it by rounding.
        over = 1 + 1e-12
        found = []
        if self.local > self.local_limit * over:
            found.append(f"η_ℓ K = {self.local:.6g} exceeds c₁/L_w = {self.local_limit:.6g}")
        if self.effective > self.effective_limit * over:
            found.append(f"η_eff = {self.effective:.6g} exceeds c₂c_min²/(c_max L_Φ) = {self.effective_limit:.6g}")
        return tuple(found)


def step_conditions(problem: ProblemConstants, steps: StepSizes) -> StepConditions:
    r"""$\eta_\ell K \le c_1/L_w$ and $\eta_{\rm eff} \le c_2c_{\min}^2/(c_{\max}L_\Phi)$: Assumption A.9."""
    return StepConditions(
        local=steps.local,
        local_limit=LOCAL_LIMIT / problem.total_smoothness,
        effective=steps.effective,
        effective_limit=largest_effective_step(problem),
    )


def explicit_constants(problem: ProblemConstants, *, attained_lipschitz: bool = False) -> ExplicitConstants:
    r"""$A_1, \ldots, A_7$ of Theorem A.22.

    $$ \begin{aligned}
       A_1 &= 4c_{\max}, & A_2 &= 6c_{\max}L_\Phi, & A_3 &= 12c_{\max}L_\Phi, \\
       A_4 &= c_{\max}L_w^2\bar G^2(c_{\max} + L_\Phi\bar\eta_{\rm eff}), &
       A_5 &= 8c_{\max}E_{\rm wt}G_{\max}^2C^2, \\
       A_6 &= 8c_{\max}E_{\rm wt}G_{\max}^4C^2, & A_7 &= 16c_{\max}E_{\rm wt}G_{\max}^2.
       \end{aligned} $$

    Args:
        problem: The problem.
        attained_lipschitz: Use the attained $1/\rho_{\rm clip}$ in place of $C = 2/\rho_{\rm clip}$, which divides
            $A_5$ and $A_6$ by four.
    """
    c, smooth = problem.scale_max, problem.hypervolume_smoothness
    weight_error = 8 * c * weight_error_factor(problem) * problem.largest_gradient**2
    squared_lipschitz = lipschitz(problem, attained=attained_lipschitz) ** 2
    return ExplicitConstants(
        a1=4 * c,
        a2=6 * c * smooth,
        a3=12 * c * smooth,
        a4=c * problem.total_smoothness**2 * problem.drift_gradient * (c + smooth * largest_effective_step(problem)),
        a5=weight_error * squared_lipschitz,
        a6=weight_error * problem.largest_gradient**2 * squared_lipschitz,
        a7=2 * weight_error,
    )


def stationarity_bound(
    problem: ProblemConstants,
    steps: StepSizes,
    horizon: int,
    *,
    report_error: float | None = None,
    orthogonal_gradients: bool = False,
    orthogonal_reports: bool = False,
    attained_lipschitz: bool = False,
    check_steps: bool = True,
) -> BoundTerms:
    r"""Theorem A.22: the seven terms that bound $\frac1T\sum_t\mathbb E\|\nabla\Phi(\theta^t)\|^2$.

    Args:
        problem: The problem, with its margin.
        steps: The step sizes.
        horizon: $T$.
        report_error: $\Xi_{\rm loss,T}$ if it is known; its bound from $\omega_i$ and $\tau_i$ otherwise.
        orthogonal_gradients: Gradient noises of different clients are uncorrelated (CCO-grad): $\Sigma^2/M$ in
            the second term and in $\mathcal V$, Remark A.23.
        orthogonal_reports: Report errors of different clients are uncorrelated (CCO-report): $\tau_i^2/M$ in the
            bound on $\Xi_{\rm loss,T}$.
        attained_lipschitz: As in `explicit_constants`.
        check_steps: Reject step sizes that violate the theorem's conditions. Without the check the result is the value
            of the formula. It allows a comparison of terms but is not a bound.
    """
    t = whole("horizon", horizon)
    conditions = step_conditions(problem, steps)
    if check_steps and not conditions.hold:
        raise InputError(
            "Parameter `steps` should satisfy the theorem's step-size conditions. "
            f"Found {steps}: {'; '.join(conditions.violations)}."
        )
    if report_error is None:
        report_error = problem.report_error_bound(orthogonal=orthogonal_reports)
    a = explicit_constants(problem, attained_lipschitz=attained_lipschitz)
    eta = steps.effective
    factor = movement_factor(problem, steps, orthogonal_gradients=orthogonal_gradients)
    return BoundTerms(
        initial_gap=a.a1 * problem.initial_gap / (eta * t),
        gradient_noise=a.a2 * eta * problem.noise / (problem.cohort if orthogonal_gradients else 1),
        participation=a.a3 * eta * problem.participation_heterogeneity,
        local_drift=a.a4 * steps.drift,
        report_error=a.a5 * nonnegative("report_error", report_error),
        staleness=a.a6 * eta**2 * factor,
        initial_weights=a.a7 / t,
    )


def single_objective_stationarity_bound(
    problem: ProblemConstants,
    steps: StepSizes,
    horizon: int,
    *,
    orthogonal_gradients: bool = False,
    check_steps: bool = True,
) -> BoundTerms:
    r"""Corollary A.26: with $m = 1$ the weight is always one, and the terms of its error vanish."""
    if problem.tasks != 1:
        raise InputError(f"Parameter `problem` should have one task. Found `problem.tasks = {problem.tasks}`.")
    terms = stationarity_bound(
        problem,
        steps,
        horizon,
        report_error=0.0,
        orthogonal_gradients=orthogonal_gradients,
        check_steps=check_steps,
    )
    return dataclasses.replace(terms, staleness=0.0, initial_weights=0.0)


def largest_base_step(problem: ProblemConstants, server_lr: float) -> float:
    r"""$\max\eta_0 = \min\{\bar\eta_g c_1/L_w, \bar\eta_{\rm eff}\}$: Corollary A.24."""
    local = positive("server_lr", server_lr) * LOCAL_LIMIT / problem.total_smoothness
    return min(local, largest_effective_step(problem))


def prescribed_steps(
    problem: ProblemConstants,
    horizon: int,
    *,
    local_steps: int,
    server_lr: float = 1.0,
    base_step: float | None = None,
) -> StepSizes:
    r"""The horizon-dependent schedule of Corollary A.24.

    $$ \eta_\ell = \frac{\eta_0}{\bar\eta_g K\sqrt T}, \qquad \eta_{\rm eff} = \frac{\eta_0}{\sqrt T}. $$

    Args:
        problem: The problem, with its margin.
        horizon: $T$.
        local_steps: $K$.
        server_lr: $\bar\eta_g$.
        base_step: $\eta_0$; the largest admissible one by default.
    """
    t, k = whole("horizon", horizon), whole("local_steps", local_steps)
    largest = largest_base_step(problem, server_lr)
    eta0 = largest if base_step is None else positive("base_step", base_step)
    if eta0 > largest:
        raise InputError(f"Parameter `base_step` should be at most {largest}. Found `base_step = {eta0}`.")
    return StepSizes(local_steps=k, local_lr=eta0 / (server_lr * k * math.sqrt(t)), server_lr=server_lr)
