r"""The certificate of reference safety: Theorem A.15, "Conditional self-certification of reference safety".

For a safe start and bounded stochastic gradients, two inequalities imply the following with probability $1 - \delta$:
every round starts with all true slacks at least $\rho$, and they stay at least $\rho/2$ during the round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedhv.support.errors import InputError
from fedhv.theory._checks import nonnegative, positive, probability, whole
from fedhv.theory.barrier import log_largest_product, slack_floor
from fedhv.theory.constants import ProblemConstants, StepSizes


@dataclass(frozen=True)
class Certificate:
    r"""Both conditions of the theorem, term by term.

    Attributes:
        margin: $\rho$.
        horizon: $T$.
        delta: $\delta$, the probability that the certificate may be wrong.
        excursion: $\Delta_{\max}$, the largest distance that the model can move in a round.
        buffer: $G_{\max}\Delta_{\max} + \frac{L_{\max}}2\Delta_{\max}^2$, the largest loss of slack in a round.
        drift: $\mu(\rho)$, a bound on the mean growth of $\Phi$ in a round.
        increment: $D(\rho)$, a bound on the change of $\Phi$ in a round.
        initial_value: $\Phi(\theta^0)$.
        drift_total: $T\mu(\rho)$.
        fluctuation: $(D(\rho) + \mu(\rho))\sqrt{2T\log(1/\delta)}$.
        budget: $\log\frac{1}{\rho R_r}$, the value of $\Phi$ below which every slack exceeds $\rho$.
    """

    margin: float
    horizon: int
    delta: float
    excursion: float
    buffer: float
    drift: float
    increment: float
    initial_value: float
    drift_total: float
    fluctuation: float
    budget: float

    @property
    def spent(self) -> float:
        """The left side of the budget inequality."""
        return self.initial_value + self.drift_total + self.fluctuation

    @property
    def certified(self) -> bool:
        """Whether both conditions hold."""
        return not self.reasons

    @property
    def certified_margin(self) -> float:
        r"""$\rho/2$: the margin of the convergence theorem under this certificate, and its largest floor."""
        return self.margin / 2

    @property
    def reasons(self) -> tuple[str, ...]:
        """The conditions that fail, with their terms."""
        found = []
        if not self.buffer <= self.margin / 2:
            found.append(
                f"a round can use up slack G_max Δ_max + L_max Δ_max²/2 = {self.buffer:.6g} "
                f"(Δ_max = {self.excursion:.6g}), more than ρ/2 = {self.margin / 2:.6g}"
            )
        if not self.spent <= self.budget:
            found.append(
                f"Φ(θ⁰) + Tμ + (D + μ)√(2T log(1/δ)) = {self.initial_value:.6g} + {self.drift_total:.6g} + "
                f"{self.fluctuation:.6g} = {self.spent:.6g} exceeds the budget "
                f"log(1/(ρR_r)) = {self.budget:.6g} (μ = {self.drift:.6g}, D = {self.increment:.6g})"
            )
        return tuple(found)

    def __str__(self) -> str:
        setting = f"ρ = {self.margin:.6g}, T = {self.horizon}, δ = {self.delta:.6g}"
        if self.certified:
            return (
                f"Certified at {setting}: buffer {self.buffer:.6g} ≤ ρ/2 = {self.margin / 2:.6g}, "
                f"budget {self.spent:.6g} ≤ {self.budget:.6g}."
            )
        return f"Not certified at {setting}, because {'; and because '.join(self.reasons)}."


def certify(
    problem: ProblemConstants, steps: StepSizes, horizon: int, delta: float, margin: float | None = None
) -> Certificate:
    r"""Evaluate the conditions of Eqs. (25) and (26).

    $$ \Phi(\theta^0) + T\mu(\rho) + (D(\rho) + \mu(\rho))\sqrt{2T\log(1/\delta)}
       \le \log\frac{1}{\rho R_r}, \qquad R_r = \max_i \prod_{j \ne i} r_j. $$

    Args:
        problem: The problem, with its `gradient_bound` $G_{\rm sg}$; its own margin is not used.
        steps: The step sizes.
        horizon: $T$.
        delta: $\delta \in (0, 1)$.
        margin: $\rho$. By default the largest that can be certified; if there is none, the one closest to it.
    """
    whole("horizon", horizon)
    probability("delta", delta)
    if margin is None:
        margin = largest_margin(problem, steps, horizon, delta) or _best_margin(problem, steps, horizon, delta)
    positive("margin", margin)
    mu, increment = mean_drift(problem, steps, margin), largest_increment(problem, steps, margin)
    return Certificate(
        margin=margin,
        horizon=horizon,
        delta=delta,
        excursion=round_excursion(problem, steps),
        buffer=round_buffer(problem, steps),
        drift=mu,
        increment=increment,
        initial_value=problem.initial_value,
        drift_total=horizon * mu,
        fluctuation=(increment + mu) * _deviation(horizon, delta),
        budget=-math.log(margin) - log_largest_product(problem.reference),
    )


def round_excursion(problem: ProblemConstants, steps: StepSizes) -> float:
    r"""$\Delta_{\max} = \eta_\ell K G_{\rm sg}\max\{1, \eta_g\}$: Lemma A.13, "Round-excursion buffer"."""
    return steps.local * _gradient_bound(problem) * max(1.0, steps.server_lr)


def round_buffer(problem: ProblemConstants, steps: StepSizes) -> float:
    r"""$G_{\max}\Delta_{\max} + \frac{L_{\max}}{2}\Delta_{\max}^2$, to be at most $\rho/2$."""
    move = round_excursion(problem, steps)
    return problem.largest_gradient * move + problem.largest_smoothness / 2 * move**2


def smallest_margin(problem: ProblemConstants, steps: StepSizes) -> float:
    r"""The smallest $\rho$ that the buffer condition admits: twice the round's buffer."""
    return 2 * round_buffer(problem, steps)


def mean_drift(problem: ProblemConstants, steps: StepSizes, margin: float) -> float:
    r"""$\mu(\rho)$ of Theorem A.15: a bound on the mean growth of $\Phi$ in a round.

    $$ \mu(\rho) = \frac{mG_{\max}}{\rho}\Big(\eta_{\rm eff}G_{\max}
       + \tfrac12\eta_g\eta_\ell^2K^2L_wG_{\rm sg}\Big)
       + \tfrac12L_\Phi(\rho/2)\,\eta_{\rm eff}^2G_{\rm sg}^2. $$
    """
    x = 1 / positive("margin", margin)
    first, _, second = _growth(problem, steps)
    return first * x + second * x**2


def largest_increment(problem: ProblemConstants, steps: StepSizes, margin: float) -> float:
    r"""$D(\rho)$ of Theorem A.15: a bound on the change of $\Phi$ in a round.

    $$ D(\rho) = \frac{2mG_{\max}}{\rho}\eta_{\rm eff}G_{\rm sg}
       + \tfrac12L_\Phi(\rho/2)\,\eta_{\rm eff}^2G_{\rm sg}^2. $$
    """
    x = 1 / positive("margin", margin)
    _, first, second = _growth(problem, steps)
    return first * x + second * x**2


def largest_horizon(problem: ProblemConstants, steps: StepSizes, delta: float, margin: float | None = None) -> int:
    r"""The largest $T$ that can be certified, at the given $\rho$ or the best one; zero if there is none.

    The left side grows with $T$, so bisection finds it.
    """
    probability("delta", delta)

    def certifiable(horizon: int) -> bool:
        at = _best_margin(problem, steps, horizon, delta) if margin is None else margin
        return certify(problem, steps, horizon, delta, at).certified

    if not certifiable(1):
        return 0
    low, high = 1, 2
    while certifiable(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if certifiable(middle) else (low, middle)
    return low


def largest_margin(problem: ProblemConstants, steps: StepSizes, horizon: int, delta: float) -> float | None:
    r"""The largest $\rho$ that can be certified over $T$ rounds, or None.

    With $x = 1/\rho$, the rest of the budget is $\log x - \log R_r - \Phi(\theta^0) - \alpha x - \beta x^2$. It is
    concave, so the certifiable margins form an interval. The buffer condition may remove its lower part.
    """
    whole("horizon", horizon)
    probability("delta", delta)
    low = _best_margin(problem, steps, horizon, delta)
    if not certify(problem, steps, horizon, delta, low).certified:
        return None
    # At the slack floor of the start the rest of the budget is zero, so the result lies below it.
    high = slack_floor(problem.initial_value, problem.reference)
    while low < (middle := math.sqrt(low * high)) < high:
        low, high = (middle, high) if certify(problem, steps, horizon, delta, middle).certified else (low, middle)
    return low


def azuma_bound(level: float, increment: float, horizon: int) -> float:
    r"""Lemma A.14, "Maximal Azuma inequality" for a supermartingale from zero with steps of at most c.

    $$ \mathbb P\Big(\max_{t \le T} Y_t \ge \lambda\Big) \le \exp\Big(-\frac{\lambda^2}{2Tc^2}\Big). $$
    """
    ratio = nonnegative("level", level) / positive("increment", increment)
    return math.exp(-(ratio**2) / (2 * whole("horizon", horizon)))


def _best_margin(problem: ProblemConstants, steps: StepSizes, horizon: int, delta: float) -> float:
    """The margin with the largest rest of the budget, among those that satisfy the buffer condition.

    Without the buffer it is the stationary point of log x − αx − βx², with x = 1/ρ.
    """
    mu1, d1, second = _growth(problem, steps)
    deviation = _deviation(horizon, delta)
    alpha = horizon * mu1 + deviation * (mu1 + d1)
    beta = (horizon + 2 * deviation) * second
    return max((alpha + math.sqrt(alpha**2 + 8 * beta)) / 2, smallest_margin(problem, steps))


def _growth(problem: ProblemConstants, steps: StepSizes) -> tuple[float, float, float]:
    r"""$\mu_1$, $d_1$ and $b$ in $\mu(\rho) = \mu_1/\rho + b/\rho^2$ and $D(\rho) = d_1/\rho + b/\rho^2$."""
    g, g_sg, eta = problem.largest_gradient, _gradient_bound(problem), steps.effective
    curvature = eta**2 * g_sg**2 / 2
    shared = 2 * problem.total_smoothness * curvature
    bias = steps.server_lr * steps.local**2 * problem.total_smoothness * g_sg / 2
    mu1 = problem.tasks * g * (eta * g + bias) + shared
    d1 = 2 * problem.tasks * g * eta * g_sg + shared
    return mu1, d1, 4 * float((problem.gradient_bounds**2).sum()) * curvature


def _deviation(horizon: int, delta: float) -> float:
    return math.sqrt(2 * horizon * math.log(1 / delta))


def _gradient_bound(problem: ProblemConstants) -> float:
    if problem.gradient_bound is None:
        raise InputError(
            "Parameter `gradient_bound` should be given, because the certificate needs bounded gradients. "
            "Found `gradient_bound = None`."
        )
    return problem.gradient_bound
