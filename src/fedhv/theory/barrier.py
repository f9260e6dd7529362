r"""$\Phi$ as a barrier, its value and the smallest slack: Lemma A.11, "Barrier level set and slack floor"."""

from __future__ import annotations

import numpy as np

from fedhv.methods.weights import Vector
from fedhv.theory._checks import positive_vector


def log_largest_product(caps: Vector) -> float:
    r"""$\log R_{\max}(S)$ with $R_{\max}(S) = \max_i \prod_{j \ne i} S_j$.

    Args:
        caps: $S$, upper bounds on the slacks. For nonnegative losses the reference itself is valid.
    """
    logs = np.log(positive_vector("caps", caps))
    return float(logs.sum() - logs.min())


def barrier_level(slack: Vector) -> float:
    r"""$\psi(\theta) = -\log \min_i s_i(\theta)$."""
    return float(-np.log(positive_vector("slack", slack).min()))


def slack_floor(value: float, caps: Vector) -> float:
    r"""The slack that a value of $\Phi$ guarantees to every task, Eq. (23).

    $$ \min_i s_i(\theta) \ge e^{-\Phi(\theta)} / R_{\max}(S). $$

    Equality holds if every slack except the smallest equals its cap and the smallest slack has the smallest cap. For
    one task it always holds.
    """
    return float(np.exp(-value - log_largest_product(caps)))


def barrier_sandwich(slack: Vector, caps: Vector) -> tuple[float, float]:
    r"""The two sides of $\psi - \log R_{\max}(S) \le \Phi \le m\psi$, Eq. (24).

    The right side is attained by equal slacks, the left as in `slack_floor`.
    """
    s = positive_vector("slack", slack)
    psi = barrier_level(s)
    return psi - log_largest_product(caps), s.size * psi


def loss_ceiling(value: float, reference: Vector) -> np.ndarray:
    r"""The bound on every loss from $\Phi(\theta) \le B$: $f_i \le r_i - e^{-B}/R_{\max}(r)$.

    Proposition 4.4, "Minimum-slack control".
    """
    r = positive_vector("reference", reference)
    return np.asarray(r - slack_floor(value, r))
