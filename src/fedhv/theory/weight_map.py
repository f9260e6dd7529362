r"""Stability of the inverse-slack weight map: Lemma A.17, "Sharp calculus of the stabilized HV weight map".

Throughout, $V_i(a) = a_i^{-1} / \sum_j a_j^{-1}$ for slacks $a \in (0, \infty)^m$, and
$W_{\rho}(z; r) = V(\max\{r - z, \rho\})$. The map itself is `fedhv.methods.weights.inverse_slack_weights`.
"""

from __future__ import annotations

import numpy as np

from fedhv.methods.weights import Vector, inverse_slack_weights, slacks
from fedhv.support.errors import InputError
from fedhv.theory._checks import positive, positive_vector, vector


def weight_jacobian(slack: Vector) -> np.ndarray:
    r"""The Jacobian of $V$, from the proof of Lemma A.17, with $u_i = a_i^{-1}$ and $U = \sum_j u_j$.

    $$ \frac{\partial V_i}{\partial a_j} = -\frac{1\{i=j\}\, u_i^2}{U} + \frac{u_i u_j^2}{U^2}. $$

    The Jacobian in the losses is its negative, since $a = r - z$.
    """
    u, w = _inverse(slack)
    return np.asarray(-np.diag(w * u) + np.outer(w, w * u))


def weight_second_derivatives(slack: Vector) -> np.ndarray:
    r"""The m × m × m second derivatives of $V$, from the proof of Lemma A.17.

    $$ \frac{\partial^2 V_i}{\partial a_j \partial a_k}
       = \frac{2\,1\{i=j=k\}u_i^3}{U} - \frac{1\{i=j\}u_i^2u_k^2}{U^2} - \frac{1\{i=k\}u_i^2u_j^2}{U^2}
       - \frac{2\,1\{j=k\}u_iu_j^3}{U^2} + \frac{2u_iu_j^2u_k^2}{U^3}. $$
    """
    u, w = _inverse(slack)
    wu, eye = w * u, np.eye(len(u))
    same = np.einsum("ij,jk->ijk", eye, eye)
    return np.asarray(
        2 * same * (wu * u)[:, None, None]
        - np.einsum("ij,i,k->ijk", eye, wu, wu)
        - np.einsum("ik,i,j->ijk", eye, wu, wu)
        - 2 * np.einsum("jk,i,j->ijk", eye, w, wu * u)
        + 2 * np.einsum("i,j,k->ijk", w, wu, wu)
    )


def weight_jacobian_bound(slack: Vector) -> float:
    r"""$\sum_{i,j} |\partial V_i / \partial a_j| \le 2 / a_{\min}$, Eq. (27).

    For equal slacks the sum is $2(1 - 1/m)/a_{\min}$, which approaches the bound as m grows.
    """
    return float(2 / positive_vector("slack", slack).min())


def weight_second_derivative_bound(slack: Vector) -> float:
    r"""$\sum_{i,j,k} |\partial^2 V_i / \partial a_j \partial a_k| \le 8 / a_{\min}^2$.

    Eq. (27); equal slacks approach the bound as m grows.
    """
    return float(8 / positive_vector("slack", slack).min() ** 2)


def weight_lipschitz(floor: float) -> float:
    r"""The constant $C(\rho_{\rm clip}, r) = 2/\rho_{\rm clip}$ of Eq. (28).

    $$ \|W_\rho(z; r) - W_\rho(z'; r)\|_1 \le \frac{2}{\rho} \|z - z'\|_\infty \quad\text{for all } z, z'. $$

    If all slacks on the segment from $z'$ to $z$ are at least $\tilde\rho$, it holds with $\tilde\rho$ in place of the
    floor.
    """
    return 2 / positive("floor", floor)


def attained_weight_lipschitz(floor: float) -> float:
    r"""The smallest constant with which Eq. (28) holds: $1/\rho_{\rm clip}$, half the lemma's.

    The lemma bounds the operator norm of the Jacobian by the sum of its entries. Directly, with
    $x_i = u_i d_i$ and $\bar x = \sum_j w_j x_j$,
    $\|DV(a)\,d\|_1 = \sum_i w_i |x_i - \bar x|$ is the mean absolute deviation of numbers that lie in
    $[-1/a_{\min}, 1/a_{\min}]$ when $\|d\|_\infty \le 1$, hence at most half the length of that interval. Two
    tasks with slacks equal to the floor, moved in opposite directions, attain it.
    """
    return 1 / positive("floor", floor)


def linearisation_error(losses: Vector, at: Vector, reference: Vector, floor: float) -> float:
    r"""The left side of Eq. (29): $\|W(z) - W(z') - J_W(z')(z - z')\|_1$, $z'$ = `at`."""
    z, z0, r = _unclipped(losses, at, reference, floor)
    moved = inverse_slack_weights(z, r, floor) - inverse_slack_weights(z0, r, floor)
    return float(np.abs(moved + weight_jacobian(r - z0) @ (z - z0)).sum())


def linearisation_bound(losses: Vector, at: Vector, reference: Vector, floor: float) -> float:
    r"""The right side of Eq. (29): $\frac{4}{\tilde\rho^2} \|z - z'\|_\infty^2$.

    $\tilde\rho$ is the smallest slack on the segment from $z'$ to $z$, and must exceed the floor.
    """
    z, z0, r = _unclipped(losses, at, reference, floor)
    margin = min((r - z).min(), (r - z0).min())  # slacks are affine on the segment, so their minima are at its ends
    return float(4 / margin**2 * np.abs(z - z0).max() ** 2)


def _inverse(slack: Vector) -> tuple[np.ndarray, np.ndarray]:
    """Inverse slacks and their normalised weights."""
    a = positive_vector("slack", slack)
    if a.ndim != 1:
        raise InputError(f"Parameter `slack` should be one vector. Found `slack` of shape {a.shape}.")
    return 1 / a, inverse_slack_weights(-a, np.zeros_like(a), a.min())


def _unclipped(
    losses: Vector, at: Vector, reference: Vector, floor: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r = vector("reference", reference)
    z, z0 = vector("losses", losses, size=r.size), vector("at", at, size=r.size)
    positive("floor", floor)
    for name, value in (("losses", z), ("at", z0)):
        if not (slacks(value, r) > floor).all():
            raise InputError(
                f"Parameter `{name}` should leave every slack above the floor {floor}, where the map is smooth. "
                f"Found `{name} = {value.tolist()}` with reference {r.tolist()}."
            )
    return z, z0, r
