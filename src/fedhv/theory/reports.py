r"""The error of a cohort's reports as estimates of the global losses: Section A.7, "Objective-Report Analysis"."""

from __future__ import annotations

import numpy as np

from fedhv.methods.weights import Vector
from fedhv.support.errors import InputError
from fedhv.theory._checks import array, vector, whole


def cohort_size(clients: int, participation: float) -> int:
    r"""$M = pN$ for a participation rate $p \in (0, 1]$ that makes it a whole number."""
    n = whole("clients", clients)
    if not 0 < participation <= 1:
        raise InputError(f"Parameter `participation` should lie in (0, 1]. Found `participation = {participation}`.")
    m = round(participation * n)
    if m < 1 or abs(m - participation * n) > 1e-9 * n:
        raise InputError(
            f"Parameter `participation` should select a whole number of the {n} clients. "
            f"Found `participation = {participation}`, which is {participation * n} clients."
        )
    return m


def participation_factor(clients: int, cohort: int) -> float:
    r"""$\chi_N(M) = \frac{N - M}{M(N-1)} = \frac{1-p}{p(N-1)}$, Eq. (10).

    The finite-population participation factor: zero under full participation, one for a cohort of one.
    """
    return _without_replacement(whole("clients", clients), whole("cohort", cohort, most=clients))


def participation_heterogeneity(heterogeneity: Vector, clients: int, cohort: int) -> float:
    r"""$\mathcal H_N(p; \zeta) = \chi_N(M) \sum_i \zeta_i^2$, at most $\frac{1-p}{p}\sum_i\zeta_i^2$."""
    zeta = vector("heterogeneity", heterogeneity, least=0)
    return participation_factor(clients, cohort) * float((zeta**2).sum())


def report_size(examples: int, batches: int, batch_size: int) -> int:
    r"""Examples in a client's report: $b^{\rm rep} = n_k$ for $q = 0$ (all), else $\min\{q\,b, n_k\}$.

    Args:
        examples: $n_k$.
        batches: $q = B_{\rm rep}$, zero for the whole client.
        batch_size: $b$.
    """
    n, q = whole("examples", examples), whole("batches", batches, least=0)
    b = whole("batch_size", batch_size)
    return n if q == 0 else min(q * b, n)


def report_factor(examples: int, size: int) -> float:
    r"""$\gamma_{k,t} = \frac{n_k - b^{\rm rep}}{b^{\rm rep}(n_k - 1)}$, and zero for $n_k = 1$.

    Assumption A.18: the factor on the examples' dispersion for a report on `size` of them.
    """
    return _without_replacement(whole("examples", examples), whole("size", size, most=examples))


def dispersion(values: Vector) -> np.ndarray:
    r"""$v_{i,k}(\theta) = \frac1{n_k}\sum_j (\ell_i(\theta; x_{k,j}) - f_i^{(k)}(\theta))^2$, within a client.

    Args:
        values: Per-example losses, $n_k$ of one task or an $n_k$ × m matrix.
    """
    y = _population("values", values)
    return np.asarray(((y - y.mean(axis=0)) ** 2).mean(axis=0))


def report_moments(values: Vector, size: int) -> tuple[np.ndarray, np.ndarray]:
    r"""Mean and variance of a report on `size` examples drawn without replacement: Lemma A.19.

    $$ \mathbb E[\hat f_{i,k}] = f_i^{(k)}(\theta), \qquad
       \mathbb E[(\hat f_{i,k} - f_i^{(k)}(\theta))^2] = \gamma_{k}\, v_{i,k}(\theta). $$
    """
    y = _population("values", values)
    return np.asarray(y.mean(axis=0)), report_factor(len(y), size) * dispersion(y)


def within_client_variance(dispersions: Vector, factors: Vector) -> np.ndarray:
    r"""$\tau_i^2(\theta) = \frac1N \sum_k \gamma_k v_{i,k}(\theta)$, one round of Eq. (31).

    Args:
        dispersions: $v_{i,k}$, an N × m matrix.
        factors: $\gamma_k$, one per client.
    """
    v, g = _population("dispersions", dispersions), array(factors)
    if g.shape != (len(v),):
        raise InputError(
            f"Parameter `factors` should hold one number per client ({len(v)}). Found `factors` of shape {g.shape}."
        )
    return np.asarray(g @ v / len(v))


def between_client_variance(client_losses: Vector) -> np.ndarray:
    r"""$\omega_i^2(\theta) = \frac1N \sum_k (f_i^{(k)}(\theta) - f_i(\theta))^2$, Assumption A.18.

    Args:
        client_losses: $f_i^{(k)}(\theta)$, an N × m matrix.
    """
    return dispersion(client_losses)


def report_error_bound(
    loss_spread: Vector, report_noise: Vector, clients: int, cohort: int, *, orthogonal: bool = False
) -> float:
    r"""Lemma A.20, "Finite-population objective-report error", Eq. (12).

    $$ \Xi_{\rm loss} \le \sum_i \big[ \chi_N(M)\,\omega_i^2 + \tau_i^2 \big]. $$

    Zero under full participation with full reports. For one task and independent reports the orthogonal form is
    an equality. The other form is an equality if all clients are equal and have the same report error.

    Args:
        loss_spread: $\omega_i$, the spread of the losses between clients.
        report_noise: $\tau_i$, the noise of reports within clients.
        clients: $N$.
        cohort: $M$.
        orthogonal: Report errors of different clients are uncorrelated (CCO-report): $\tau_i^2/M$ for $\tau_i^2$.
    """
    omega = vector("loss_spread", loss_spread, least=0)
    tau = vector("report_noise", report_noise, size=omega.size, least=0)
    chi = participation_factor(clients, cohort)
    return float((chi * omega**2 + tau**2 / (cohort if orthogonal else 1)).sum())


def report_errors(reports: Vector, losses: Vector) -> np.ndarray:
    r"""$\|\hat F^t - F(\theta^t)\|_\infty^2$ for every round (and every run, if there are several).

    Args:
        reports: Server estimates $\hat F^t$, of shape (…, T, m).
        losses: Global losses $F(\theta^t)$ at the same models, of the same shape.
    """
    estimate, truth = vector("reports", reports), vector("losses", losses, least=0)
    if estimate.shape != truth.shape:
        raise InputError(
            f"Parameter `reports` should have the losses' shape {truth.shape}. "
            f"Found `reports` of shape {estimate.shape}."
        )
    return np.asarray((np.abs(estimate - truth) ** 2).max(axis=-1))


def measured_report_error(reports: Vector, losses: Vector) -> float:
    r"""$\Xi_{\rm loss,T} = \max_t \mathbb E\|\hat F^t - F(\theta^t)\|_\infty^2$, the mean taken over runs.

    Arrays of shape (runs, T, m); one run of shape (T, m) gives its own largest squared error.
    """
    errors = report_errors(reports, losses)
    if errors.ndim not in (1, 2):
        raise InputError(
            "Parameter `reports` should have shape (T, m) or (runs, T, m). "
            f"Found `reports` of shape {(*errors.shape, np.shape(reports)[-1])}."
        )
    return float(np.atleast_2d(errors).mean(axis=0).max())


def _without_replacement(population: int, sample: int) -> float:
    """The variance of a mean of `sample` out of `population`, relative to the population's variance."""
    return 0.0 if population == 1 else (population - sample) / (sample * (population - 1))


def _population(name: str, values: Vector) -> np.ndarray:
    y = array(values)
    if y.ndim not in (1, 2) or y.size == 0 or not np.isfinite(y).all():
        raise InputError(
            f"Parameter `{name}` should be finite, one row per member of the population. "
            f"Found `{name}` of shape {y.shape}{'' if np.isfinite(y).all() else ' with non-finite entries'}."
        )
    return y
