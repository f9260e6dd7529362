r"""The constants of a problem and a run that the theory uses: one number per symbol of the paper."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedhv.methods.weights import Vector, log_hypervolume
from fedhv.support.errors import InputError
from fedhv.theory._checks import positive, positive_vector, vector, whole
from fedhv.theory.hypervolume import gradient_bounds, scale_bounds, smoothness_constant
from fedhv.theory.reports import participation_factor, report_error_bound

_PER_TASK = ("gradient_noise", "heterogeneity", "loss_spread", "report_noise")


@dataclass(frozen=True, kw_only=True)
class ProblemConstants:
    r"""The constants of the paper's assumptions, checked against them. Vectors hold one number per task.

    Attributes:
        smoothness: $L_i$: every client's $f_i^{(k)}$ is nonnegative and $L_i$-smooth (Assumption A.2).
        reference: $r_i$, the fixed reference.
        initial_losses: $f_i(\theta^0)$.
        clients: $N$.
        cohort: $M = pN$, sampled uniformly without replacement (Assumption A.1).
        gradient_noise: $\sigma_i$: minibatch gradients have variance at most $\sigma_i^2$.
        heterogeneity: $\zeta_i$: client gradients differ by $\zeta_i^2$ in mean square (Assumption A.3).
        loss_spread: $\omega_i$, the spread of the losses between clients (Assumption A.18).
        report_noise: $\tau_i$, the noise of reports within clients; zero for full reports.
        margin: $\rho$, the safe margin: all true slacks on the horizon are at least this (Assumption A.4).
        floor: $\rho_{\rm clip} \le \rho$, the numerical floor of the weights; the margin itself by default.
        gradient_bound: $G_{\rm sg}$, an almost-sure bound on weighted stochastic gradients (for the certificate only).
    """

    smoothness: Vector
    reference: Vector
    initial_losses: Vector
    clients: int
    cohort: int
    gradient_noise: Vector = None
    heterogeneity: Vector = None
    loss_spread: Vector = None
    report_noise: Vector = None
    margin: float | None = None
    floor: float | None = None
    gradient_bound: float | None = None

    def __post_init__(self) -> None:
        r = positive_vector("reference", self.reference)
        if r.ndim != 1:
            raise InputError(f"Parameter `reference` should be one vector. Found `reference` of shape {r.shape}.")
        m = r.size
        lips = vector("smoothness", self.smoothness, size=m, least=0)
        if not lips.max() > 0:
            raise InputError(
                "Parameter `smoothness` should be positive for some task; otherwise all losses are constant. "
                f"Found `smoothness = {lips.tolist()}`."
            )
        f = vector("initial_losses", self.initial_losses, size=m, least=0)
        object.__setattr__(self, "clients", whole("clients", self.clients))
        object.__setattr__(self, "cohort", whole("cohort", self.cohort, most=self.clients))
        values: dict[str, Any] = {"reference": r, "smoothness": lips, "initial_losses": f}
        for name in _PER_TASK:
            given = getattr(self, name)
            values[name] = np.zeros(m) if given is None else vector(name, given, size=m, least=0)
        if not (r - f > 0).all():
            raise InputError(
                f"Parameter `reference` should exceed the initial losses {f.tolist()}. "
                f"Found `reference = {r.tolist()}`."
            )
        for name, value in values.items():
            object.__setattr__(self, name, tuple(float(x) for x in value))
        self._check_margin(float((r - f).min()))

    def _check_margin(self, slack: float) -> None:
        if self.margin is not None and positive("margin", self.margin) > slack:
            raise InputError(
                f"Parameter `margin` should be at most the smallest initial slack {slack}. "
                f"Found `margin = {self.margin}`."
            )
        if self.floor is not None:
            positive("floor", self.floor)
            if self.margin is not None and self.floor > self.margin:
                raise InputError(
                    f"Parameter `floor` should be at most the margin {self.margin}. Found `floor = {self.floor}`."
                )
        if self.gradient_bound is not None and not self.gradient_bound >= self.largest_gradient:
            raise InputError(
                "Parameter `gradient_bound` should be at least the global gradients' bound "
                f"G_max = {self.largest_gradient}. Found `gradient_bound = {self.gradient_bound}`."
            )

    def replace(self, **changes: Any) -> ProblemConstants:
        """The same problem with some constants changed, for example with a larger cohort."""
        return dataclasses.replace(self, **changes)

    @property
    def tasks(self) -> int:
        """$m$."""
        return len(self.reference)

    @property
    def rho(self) -> float:
        r"""$\rho$; an error if no margin was given."""
        if self.margin is None:
            raise InputError(
                "Parameter `margin` should be given, because the bound needs a safe reference. Found `margin = None`."
            )
        return self.margin

    @property
    def rho_clip(self) -> float:
        r"""$\rho_{\rm clip}$."""
        return self.rho if self.floor is None else self.floor

    @property
    def gradient_bounds(self) -> np.ndarray:
        r"""$G_i = \sqrt{2L_ir_i}$."""
        return gradient_bounds(self.smoothness, self.reference)

    @property
    def largest_gradient(self) -> float:
        r"""$G_{\max} = \max_i G_i$."""
        return float(self.gradient_bounds.max())

    @property
    def total_smoothness(self) -> float:
        r"""$L_w = \sum_i L_i$."""
        return float(sum(self.smoothness))

    @property
    def largest_smoothness(self) -> float:
        r"""$L_{\max} = \max_i L_i$."""
        return float(max(self.smoothness))

    @property
    def noise(self) -> float:
        r"""$\Sigma^2 = \sum_i \sigma_i^2$."""
        return float(sum(s**2 for s in self.gradient_noise))

    @property
    def dissimilarity(self) -> float:
        r"""$\zeta^2 = \sum_i \zeta_i^2$."""
        return float(sum(z**2 for z in self.heterogeneity))

    @property
    def participation(self) -> float:
        r"""$p = M/N$."""
        return self.cohort / self.clients

    @property
    def participation_heterogeneity(self) -> float:
        r"""$\mathcal H_N(p; \zeta) = \chi_N(M)\,\zeta^2$."""
        return participation_factor(self.clients, self.cohort) * self.dissimilarity

    @property
    def drift_gradient(self) -> float:
        r"""$\bar G^2 = 2(G_{\max}^2 + 4Q)$ with $Q = \zeta^2 + \Sigma^2$: Lemma A.30."""
        return 2 * (self.largest_gradient**2 + 4 * (self.dissimilarity + self.noise))

    @property
    def scale_min(self) -> float:
        r"""$c_{\min} = \sum_i 1/r_i$."""
        return scale_bounds(self.reference, self.rho)[0]

    @property
    def scale_max(self) -> float:
        r"""$c_{\max} = m/\rho$."""
        return scale_bounds(self.reference, self.rho)[1]

    @property
    def hypervolume_smoothness(self) -> float:
        r"""$L_\Phi = \sum_i L_i/\rho + \sum_i G_i^2/\rho^2$."""
        return smoothness_constant(self.smoothness, self.reference, self.rho)

    @property
    def initial_value(self) -> float:
        r"""$\Phi(\theta^0)$."""
        return float(log_hypervolume(np.array(self.initial_losses), np.array(self.reference)))

    @property
    def initial_gap(self) -> float:
        r"""$\Delta_\Phi = \Phi(\theta^0) - \Phi_{\rm lb}$ with $\Phi_{\rm lb} = -\sum_i \log r_i$."""
        # As −Σ log(1 − f_i/r_i), which is accurate for small losses.
        return float(-np.log1p(-np.array(self.initial_losses) / np.array(self.reference)).sum())

    def report_error_bound(self, *, orthogonal: bool = False) -> float:
        r"""The bound on $\Xi_{\rm loss,T}$: Lemma A.20."""
        return report_error_bound(self.loss_spread, self.report_noise, self.clients, self.cohort, orthogonal=orthogonal)


@dataclass(frozen=True, kw_only=True)
class StepSizes:
    r"""The step sizes of a round.

    Attributes:
        local_steps: $K$.
        local_lr: $\eta_\ell$.
        server_lr: $\eta_g$.
    """

    local_steps: int
    local_lr: float
    server_lr: float = 1.0

    def __post_init__(self) -> None:
        whole("local_steps", self.local_steps)
        positive("local_lr", self.local_lr)
        positive("server_lr", self.server_lr)

    @property
    def local(self) -> float:
        r"""$\eta_\ell K$."""
        return self.local_lr * self.local_steps

    @property
    def effective(self) -> float:
        r"""$\eta_{\rm eff} = \eta_g \eta_\ell K$."""
        return self.server_lr * self.local

    @property
    def drift(self) -> float:
        r"""$\eta_\ell^2 (K-1)(2K-1)$, zero for one local step."""
        k = self.local_steps
        return self.local_lr**2 * (k - 1) * (2 * k - 1)
