r"""The error of weights that are one round old: Lemma A.21, "One-round-stale weight discrepancy"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedhv.methods.weights import Vector, inverse_slack_weights, slacks
from fedhv.support.errors import InputError
from fedhv.theory._checks import histories, nonnegative, positive, vector
from fedhv.theory.weight_map import weight_lipschitz

INITIAL_BOUND = 2.0
r"""$\|w^0 - w^{\star,0}\|_1 \le 2$: both lie in the simplex."""


@dataclass(frozen=True)
class Staleness:
    r"""Both sides of Eq. (32) for every round of a run, T numbers each.

    Attributes:
        measured: $\|w^t - w^{\star,t}\|_1$.
        report_term: $\frac{2}{\rho_{\rm clip}}\|\hat F^{t-1} - F(\theta^{t-1})\|_\infty$, from $t = 1$.
        movement_term: $\frac{2}{\rho_{\rm clip}}\|F(\theta^{t-1}) - F(\theta^t)\|_\infty$, from $t = 1$.
    """

    measured: np.ndarray
    report_term: np.ndarray
    movement_term: np.ndarray

    @property
    def bound(self) -> np.ndarray:
        """The sum of the two terms; in the first round it is 2, the diameter of the simplex."""
        total = np.asarray(self.report_term + self.movement_term)
        total[:1] = INITIAL_BOUND
        return total


def staleness_bound(report_gap: float, movement: float, floor: float) -> float:
    r"""Eq. (32): a bound on $\|w^t - w^{\star,t}\|_1$ for $t \ge 1$.

    $$ \frac{2}{\rho_{\rm clip}} \Big( \|\hat F^{t-1} - F(\theta^{t-1})\|_\infty
       + \|F(\theta^{t-1}) - F(\theta^t)\|_\infty \Big). $$

    Args:
        report_gap: The first norm, the error of the preceding report.
        movement: The second norm, the change of the losses between the two rounds.
        floor: $\rho_{\rm clip}$.
    """
    return weight_lipschitz(floor) * (nonnegative("report_gap", report_gap) + nonnegative("movement", movement))


def expected_squared_staleness_bound(report_error: float, squared_movement: float, floor: float) -> float:
    r"""Eq. (33): a bound on $\mathbb E\|w^t - w^{\star,t}\|_1^2$ for $t \ge 1$.

    $$ \frac{8}{\rho_{\rm clip}^2} \Big( \Xi_{\rm loss,T}
       + \mathbb E\|F(\theta^t) - F(\theta^{t-1})\|_\infty^2 \Big). $$
    """
    both = nonnegative("report_error", report_error) + nonnegative("squared_movement", squared_movement)
    return 2 * weight_lipschitz(floor) ** 2 * both


def staleness_of_run(
    weights: Vector,
    reports: Vector,
    losses: Vector,
    reference: Vector,
    floor: float,
    *,
    local: bool = False,
    preferences: Sequence[float] | None = None,
) -> Staleness:
    r"""Measured staleness of a FedHV run and its two-term bound, round by round.

    The ideal weight is $w^{\star,t} = W_{\rho_{\rm clip}}(F(\theta^t); r)$. Its floor is inactive if the reference
    is safe.

    Args:
        weights: $w^t$ as the run used them, T × m.
        reports: $\hat F^t$, which give the weights of round t + 1, T × m.
        losses: $F(\theta^t)$ on all clients' data, T × m.
        reference: $r$.
        floor: $\rho_{\rm clip}$.
        local: Use the lemma's sharper constant $2/\tilde\rho$, with $\tilde\rho$ the smallest stabilised slack
            at the two ends of each term. The constant of the floor is very large if the floor is tiny.
        preferences: Those of the run; the bound does not depend on them.
    """
    r = vector("reference", reference)
    w, estimates, truth = histories(weights, reports, losses, r.size)
    if not np.allclose(w.sum(axis=1), 1, atol=1e-4):
        raise InputError(f"Parameter `weights` should sum to one in every round. Found sums {w.sum(axis=1)}.")

    def term(z: np.ndarray, z0: np.ndarray) -> np.ndarray:
        margin = np.full(len(z), positive("floor", floor))
        if local:
            margin = np.maximum(margin, np.minimum(slacks(z, r), slacks(z0, r)).min(axis=1))
        return np.concatenate([[0.0], 2 / margin * np.abs(z - z0).max(axis=1)])

    ideal = inverse_slack_weights(truth, r, floor, preferences)
    return Staleness(
        measured=np.abs(w - ideal).sum(axis=1),
        report_term=term(estimates[:-1], truth[:-1]),
        movement_term=term(truth[:-1], truth[1:]),
    )
