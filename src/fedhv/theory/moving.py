r"""The paper's theory for a moving reference: FedHV with $r^t = c P^t$, `fedhv-moving`.

$P_i^t = \max\{f_i^t, \gamma P_i^{t-1}\}$ are the decayed maxima; the reference is $c \max_j P_j^t$ for all tasks
("common") or $c P_i^t$ for each ("own"), with $c > 1$. Its *level* is $\varphi = \max_j P_j$ or $\varphi = \min_j P_j$.

These results hold, with other constants:

- Slacks are positive by construction: $r_i - f_i \ge (c-1)\varphi$. No calibration, margin or certificate is needed.
- The weight map is Lipschitz in the losses (`moving_weight_lipschitz`), with $(c+1)/((c-1)\varphi)$ in place of
  $1/\rho$. It is a bound on *relative* changes of the losses: the constant grows as the losses fall.
- The staleness of one-round-old weights is bounded by the report's error and the movement (`moving_staleness_bound`,
  `moving_staleness_of_run`).
- The weights lie on the simplex, so a zero of the weighted gradient is Pareto stationary, and the weighted gradient's
  norm bounds the Pareto residual.
- With a common reference every weight stays between two bounds that depend on c and m alone
  (`moving_weight_bounds`): the factor limits how far the rule can move from uniform, in every round.

These results do not hold:

- The weights are not those of a fixed objective: with a moving reference the inverse slacks are not the gradient of
  any function of the losses (`is_gradient_field`). The descent of $\Phi$, the theorem on its stationarity, and the
  interpretations as hypervolume and proportional fairness need a frozen reference.
- The paper's step sizes use $\rho$ as a constant of the whole run. Here $(c-1)\varphi$ takes its place and falls with
  the losses; a rate that is uniform in time needs a positive lower bound of the largest loss.
"""

from __future__ import annotations

import numpy as np
import torch

from fedhv.methods.rules.moving import Scope, decayed_maximum, moving_reference
from fedhv.methods.weights import Vector, inverse_slack_weights
from fedhv.support.errors import InputError
from fedhv.theory._checks import array, histories, history, nonnegative, positive, vector, whole
from fedhv.theory.staleness import Staleness
from fedhv.theory.weight_map import attained_weight_lipschitz


def moving_peaks(losses: Vector, decay: float) -> np.ndarray:
    r"""The decayed maxima $P^t$ of a history of losses, T × m."""
    truth = history("losses", losses)
    peaks: list[torch.Tensor] = []
    for row in torch.from_numpy(truth):
        peaks.append(decayed_maximum(row, peaks[-1] if peaks else None, _decay(decay)))
    return torch.stack(peaks).numpy()


def moving_references(losses: Vector, factor: float, decay: float = 0.0, scope: Scope = "common") -> np.ndarray:
    r"""The references $r^t$ of a history of losses, T × m."""
    peaks = torch.from_numpy(moving_peaks(losses, decay))
    return torch.stack([moving_reference(row, _factor(factor), scope) for row in peaks]).numpy()


def moving_weights(losses: Vector, factor: float, decay: float = 0.0, scope: Scope = "common") -> np.ndarray:
    r"""The weights that a history of losses gives, T × m: $w_i^t \propto 1/(r_i^t - f_i^t)$."""
    truth = history("losses", losses)
    references = moving_references(truth, factor, decay, scope)
    return np.asarray(inverse_slack_weights(truth, references, np.finfo(np.float64).tiny))


def moving_level(peaks: Vector, scope: Scope = "common") -> np.ndarray:
    r"""$\varphi$, the largest of the maxima for a common reference, the smallest for separate references."""
    p = vector("peaks", peaks, least=0)
    return np.asarray(p.max(axis=-1) if scope == "common" else p.min(axis=-1))


def moving_slack_floor(factor: float, level: float) -> float:
    r"""$(c-1)\varphi$, a lower bound on every slack: $r_i - f_i = cP - f_i \ge (c-1)P$, since $f_i \le P_i$."""
    return (_factor(factor) - 1) * positive("level", level)


def moving_weight_lipschitz(factor: float, level: float) -> float:
    r"""The Lipschitz constant of the weights in the last losses, for $\gamma = 0$ or maxima that do not change more.

    $$ \|w(f) - w(f')\|_1 \le \frac{c + 1}{(c-1)\varphi} \|f - f'\|_\infty. $$

    A slack $cP - f_i$ changes by at most $(c+1)\|f - f'\|_\infty$, all slacks between the two are at least
    $(c-1)\varphi$ with the smaller of the two levels, and the map from slacks to weights has the constant
    $1/((c-1)\varphi)$ there (`attained_weight_lipschitz`). Preferences do not change it.
    """
    return (_factor(factor) + 1) * attained_weight_lipschitz(moving_slack_floor(factor, level))


def moving_weight_bounds(factor: float, tasks: int) -> tuple[float, float]:
    r"""The smallest and the largest weight that a common reference can give any of m tasks.

    $$ \frac{c - 1}{(c - 1) + (m - 1)c} \;\le\; w_i \;\le\; \frac{c}{c + (m - 1)(c - 1)}, $$

    since all slacks lie between $(c-1)\varphi$ and $c\varphi$. Both are attained with $\gamma = 0$. They meet at $1/m$
    for c → ∞ and are 0 and 1 for c → 1.
    """
    c, m = _factor(factor), whole("tasks", tasks)
    return (c - 1) / ((c - 1) + (m - 1) * c), c / (c + (m - 1) * (c - 1))


def decayed_deviation(deviations: Vector, decay: float) -> float:
    r"""$\max_{s \le t} \gamma^{t-s} \|f^s - g^s\|_\infty$: how far the maxima of two histories can be apart.

    $\|P(f) - P(g)\|_\infty$ is at most this, because a maximum changes by at most the change of its arguments.

    Args:
        deviations: $\|f^s - g^s\|_\infty$ for $s = 0, \dots, t$.
        decay: γ.
    """
    d = vector("deviations", deviations, least=0)
    return float((d * _decay(decay) ** np.arange(len(d) - 1, -1, -1.0)).max())


def moving_staleness_bound(report_gap: float, movement: float, factor: float, level: float) -> float:
    r"""A bound on $\|w^t - w^{\star,t}\|_1$ for $t \ge 1$ and $\gamma = 0$, as the paper's for a frozen reference.

    $$ \frac{c+1}{(c-1)\varphi} \Big( \|\hat F^{t-1} - F(\theta^{t-1})\|_\infty
       + \|F(\theta^{t-1}) - F(\theta^t)\|_\infty \Big). $$

    Args:
        report_gap: The first norm, the error of the preceding report.
        movement: The second norm, the change of the losses between the two rounds.
        factor: c.
        level: φ, the smallest of the levels of the report and of the two losses.
    """
    both = nonnegative("report_gap", report_gap) + nonnegative("movement", movement)
    return moving_weight_lipschitz(factor, level) * both


def moving_staleness_of_run(
    weights: Vector, reports: Vector, losses: Vector, factor: float, decay: float = 0.0, scope: Scope = "common"
) -> Staleness:
    r"""Measured staleness of a run and its two-term bound, round by round, for any decay.

    The ideal weights $w^{\star,t}$ are those of the true losses up to round t. Each term is
    $(c\|P - P'\|_\infty + \|f - f'\|_\infty) / ((c-1)\varphi)$ between its two ends.

    Args:
        weights: $w^t$ as the run used them, T × m.
        reports: $\hat F^t$, T × m.
        losses: $F(\theta^t)$ on all clients' data, T × m.
        factor: c.
        decay: γ.
        scope: "common" or "own".
    """
    tasks = history("losses", losses).shape[1]
    w, estimates, truth = histories(weights, reports, losses, tasks)
    c, known, true = _factor(factor), moving_peaks(estimates, decay), moving_peaks(truth, decay)

    def term(f: np.ndarray, p: np.ndarray, g: np.ndarray, q: np.ndarray) -> np.ndarray:
        level = np.minimum(moving_level(p, scope), moving_level(q, scope))
        moved = c * np.abs(p - q).max(axis=1) + np.abs(f - g).max(axis=1)
        return np.concatenate([[0.0], moved / ((c - 1) * level)])

    return Staleness(
        measured=np.abs(w - moving_weights(truth, factor, decay, scope)).sum(axis=1),
        report_term=term(estimates[:-1], known[:-1], truth[:-1], true[:-1]),
        movement_term=term(truth[:-1], true[:-1], truth[1:], true[1:]),
    )


def is_gradient_field(jacobian: Vector, tolerance: float = 1e-6) -> bool:
    r"""Whether a vector field of the losses can be a gradient: its Jacobian is symmetric, relative to its size.

    For $v_i = 1/(r_i - f_i)$ with a frozen reference it is diagonal, hence symmetric: $v = \nabla\Phi$. With
    $r = c \max_j f_j$ the entry $\partial v_i / \partial f_j = -c v_i^2$ at the largest loss j has no counterpart
    $\partial v_j / \partial f_i = 0$.
    """
    j = array(jacobian)
    if j.ndim != 2 or j.shape[0] != j.shape[1]:
        raise InputError(f"Parameter `jacobian` should be a square matrix. Found `jacobian` of shape {j.shape}.")
    return bool(np.abs(j - j.T).max() <= tolerance * np.abs(j).max())


def _factor(value: float) -> float:
    if not 1 < value < float("inf"):
        raise InputError(f"Parameter `factor` should be more than 1. Found `factor = {value}`.")
    return float(value)


def _decay(value: float) -> float:
    if not 0 <= value <= 1:
        raise InputError(f"Parameter `decay` should be in [0, 1]. Found `decay = {value}`.")
    return float(value)
