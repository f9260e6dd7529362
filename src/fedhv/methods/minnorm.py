r"""The point of smallest norm in the convex hull of m vectors, exactly, from their inner products.

$$ \lambda^\star \in \arg\min_{\lambda \in \Delta_m} \lambda^\top G \lambda,
   \qquad G_{ij} = \langle g_i, g_j \rangle. $$

This is the direction-finding problem of multiple-gradient descent and the definition of the Pareto residual
$\mathcal P(\theta)$. It is solved by Wolfe's active-set algorithm (P. Wolfe, Finding the nearest point in a
polytope, 1976), which ends after finitely many steps with the exact minimiser, for any number of vectors.
"""

from __future__ import annotations

import numpy as np

from fedhv.support.errors import InputError

_ASYMMETRY = 1e-4
"""The tolerance for symmetry and positive semidefiniteness, relative to the norms; float32 products are within it."""


def min_norm_weights(gram: np.ndarray) -> np.ndarray:
    r"""The weights $\lambda^\star$ on the simplex that minimise $\lambda^\top G \lambda$.

    Zero vectors share the weight equally, because they attain the minimum zero. Otherwise, if several weights are
    minimisers (for example with identical vectors), one of them is returned. The scale of $G$ does not matter.

    Args:
        gram: The m × m matrix $G$ of inner products.
    """
    c, norms = _correlations(_checked(gram))
    zero = norms == 0
    if zero.any():
        return np.asarray(zero / zero.sum())
    # With μ_i = λ_i‖g_i‖ and a_i = 1/‖g_i‖ the problem is min μᵀCμ over aᵀμ = 1, μ ≥ 0, where every vector has length
    # one. So very different lengths cause no numerical problem. The shortest length is the unit.
    a = norms.min() / norms
    weights = _wolfe(c, a) * a
    return np.asarray(weights / weights.sum())


def _wolfe(c: np.ndarray, a: np.ndarray) -> np.ndarray:
    """A minimiser of μᵀCμ over aᵀμ = 1, μ ≥ 0, for a unit diagonal of C and 0 < a ≤ 1 = max a."""
    m = len(a)
    # On a face the affine minimiser solves Cμ = va. Adding aaᵀ gives the same μ, up to its length. The matrix is then
    # positive definite, because the vectors of Wolfe's faces are affinely independent.
    matrix = c + np.outer(a, a)
    x = np.zeros(m)
    first = int(np.argmax(a))  # the shortest vector, as in Wolfe's algorithm
    x[first] = 1
    face = [first]
    refused: set[int] = set()
    rounding = 16 * m * np.finfo(np.float64).eps
    for _ in range(20 * m + 20):
        value = x @ c @ x
        slope = c @ x - value * a
        error = rounding * (np.abs(c) @ x + abs(value) * a)
        entering = [j for j in range(m) if j not in face and j not in refused and slope[j] < -error[j]]
        if not entering:
            break
        # Steepest in λ, where a unit of weight is a_j units of μ.
        j = min(entering, key=lambda j: slope[j] / a[j])
        candidate, support = _descend(matrix, a, x, [*face, j])
        gain = value - candidate @ c @ candidate
        if gain < 0 or (gain == 0 and candidate[j] == 0):  # rounding: leave j out until the next real step
            refused.add(j)
        else:
            x, face, refused = candidate, support, set()
    return x


def _descend(matrix: np.ndarray, a: np.ndarray, x: np.ndarray, face: list[int]) -> tuple[np.ndarray, list[int]]:
    """Wolfe's minor cycle: towards the face's affine minimiser, dropping vectors as weights reach zero."""
    while True:
        y = np.zeros_like(x)
        y[face] = _solve(matrix[np.ix_(face, face)], a[face])
        total = a @ y
        if not total > 0:
            return x, [i for i in face if x[i] > 0]
        y /= total
        leaving = [i for i in face if y[i] <= 0]
        if not leaving:
            return y, face
        steps = {i: x[i] / (x[i] - y[i]) if x[i] > y[i] else 0.0 for i in leaving}
        nearest = min(leaving, key=lambda i: steps[i])
        x = np.maximum(x + steps[nearest] * (y - x), 0)
        x[nearest] = 0
        face = [i for i in face if x[i] > 0]
        x /= a @ x


def _solve(matrix: np.ndarray, a: np.ndarray) -> np.ndarray:
    try:
        solution = np.linalg.solve(matrix, a)
    except np.linalg.LinAlgError:
        solution = np.linalg.lstsq(matrix, a, rcond=None)[0]
    return np.asarray(solution)


def _correlations(g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cosines between the vectors and the vectors' lengths relative to the longest."""
    largest = np.diag(g).max()
    if largest == 0:
        return g, np.zeros(len(g))
    norms = np.sqrt(np.diag(g) / largest)
    present = norms > 0
    c = np.eye(len(g))
    inner = np.ix_(present, present)
    c[inner] = g[inner] / largest / np.outer(norms[present], norms[present])
    np.fill_diagonal(c, 1)
    if np.linalg.eigvalsh(c)[0] < -_ASYMMETRY * len(g):
        raise InputError(
            "Parameter `gram` should be a matrix of inner products, positive semidefinite. "
            f"Found `gram = {g.tolist()}`."
        )
    return c, norms


def _checked(gram: np.ndarray) -> np.ndarray:
    g = np.asarray(gram, dtype=np.float64)
    if g.ndim != 2 or g.shape[0] != g.shape[1] or g.shape[0] == 0:
        raise InputError(f"Parameter `gram` should be a square matrix. Found `gram` of shape {g.shape}.")
    if not np.isfinite(g).all():
        raise InputError(f"Parameter `gram` should be finite. Found `gram = {g.tolist()}`.")
    lengths = np.sqrt(np.maximum(np.diag(g), 0))
    if (np.diag(g) < 0).any() or (np.abs(g - g.T) > _ASYMMETRY * np.outer(lengths, lengths)).any():
        raise InputError(
            f"Parameter `gram` should be a symmetric matrix of inner products. Found `gram = {g.tolist()}`."
        )
    return np.asarray(g / 2 + g.T / 2)
