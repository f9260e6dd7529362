"""The min-norm point: exact for any number of vectors, any lengths, any degeneracy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from fedhv.methods.minnorm import min_norm_weights
from fedhv.support.errors import InputError

SCALES = [1e-12, 1e-6, 1.0, 1e6, 1e12]
deterministic = settings(derandomize=True, deadline=None, max_examples=150)


def gram_of(vectors):
    return vectors @ vectors.T


def assert_optimal(gram, weights, tolerance=1e-10):
    """Feasible, and the duality gap λᵀGλ − min_i (Gλ)_i, which is zero at a minimiser alone, is rounding."""
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    product = gram @ weights
    size = np.sqrt(np.diag(gram).min() * np.diag(gram).max())
    assert weights @ product - product.min() <= tolerance * size


def quadratic_programme(gram):
    """The smallest value of λᵀGλ that a general solver finds."""
    m = len(gram)
    scale = np.diag(gram).max()
    solution = minimize(
        lambda x: x @ gram @ x / scale,
        np.full(m, 1 / m),
        jac=lambda x: 2 * gram @ x / scale,
        bounds=[(0, 1)] * m,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1, "jac": lambda x: np.ones(m)},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    x = np.maximum(solution.x, 0)
    x /= x.sum()
    return x @ gram @ x


def two_vectors(gram):
    """The closed form for m = 2: the foot of the perpendicular from the origin, clipped to the segment."""
    across = gram[0, 0] - 2 * gram[0, 1] + gram[1, 1]
    first = np.clip((gram[1, 1] - gram[0, 1]) / across, 0, 1)
    return np.array([first, 1 - first])


@pytest.mark.parametrize("m", range(1, 11))
def test_agrees_with_a_quadratic_programme(m):
    for seed in range(8):
        rng = np.random.default_rng([m, seed])
        # An offset moves the hull away from the origin in half of the cases; two dimensions put it inside.
        vectors = rng.standard_normal((m, (2, 5, 30)[seed % 3])) + (seed % 2) * rng.uniform(0, 2)
        gram = gram_of(vectors)
        weights = min_norm_weights(gram)
        assert_optimal(gram, weights)
        assert weights @ gram @ weights == pytest.approx(quadratic_programme(gram), rel=1e-6, abs=1e-9)
        assert weights @ gram @ weights <= quadratic_programme(gram) + 1e-10


@pytest.mark.parametrize("scale", SCALES)
def test_agrees_with_the_closed_form_for_two_vectors(scale):
    for seed in range(50):
        rng = np.random.default_rng(seed)
        gram = gram_of(rng.standard_normal((2, 3)) * rng.choice([0.1, 1, 10], (2, 1))) * scale
        np.testing.assert_allclose(min_norm_weights(gram), two_vectors(gram), atol=1e-12)


@given(
    vectors=st.integers(1, 8).flatmap(
        lambda m: st.lists(st.lists(st.integers(-3, 3), min_size=3, max_size=3), min_size=m, max_size=m)
    ),
    exponents=st.lists(st.integers(-6, 6), min_size=8, max_size=8),
)
@deterministic
def test_is_optimal_on_degenerate_vectors_of_every_length(vectors, exponents):
    """Small whole numbers make zero, equal, opposite and dependent vectors common; lengths span 1e12."""
    v = np.array(vectors, dtype=float)
    v *= 10.0 ** np.array(exponents[: len(v)])[:, None]
    gram = gram_of(v)
    weights = min_norm_weights(gram)
    if (np.diag(gram) == 0).any():
        assert weights @ gram @ weights == 0
    assert_optimal(gram, weights)


@pytest.mark.parametrize("scale", SCALES)
def test_scale_invariant(scale):
    for seed in range(20):
        gram = gram_of(np.random.default_rng(seed).standard_normal((5, 4)))
        np.testing.assert_allclose(min_norm_weights(scale * gram), min_norm_weights(gram), atol=1e-12)


def test_permutation_equivariant():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        gram = gram_of(rng.standard_normal((6, 12)))
        order = rng.permutation(6)
        permuted = min_norm_weights(gram[np.ix_(order, order)])
        np.testing.assert_allclose(permuted, min_norm_weights(gram)[order], atol=1e-12)


def test_inverse_square_weights_for_orthogonal_vectors():
    lengths = np.array([1e-3, 1.0, 20.0, 1e4])
    expected = lengths**-2 / (lengths**-2).sum()
    np.testing.assert_allclose(min_norm_weights(np.diag(lengths**2)), expected, rtol=1e-12)


def test_origin_inside_the_hull_gives_zero():
    triangle = np.array([[1.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]])
    weights = min_norm_weights(gram_of(triangle))
    np.testing.assert_allclose(weights, [0.5, 0.25, 0.25], atol=1e-14)
    np.testing.assert_allclose(weights @ triangle, 0, atol=1e-14)


def test_opposite_vectors_cancel():
    gram = np.array([[1.0, -3.0], [-3.0, 9.0]])
    np.testing.assert_allclose(min_norm_weights(gram), [0.75, 0.25], atol=1e-14)


@pytest.mark.parametrize("scale", SCALES)
def test_identical_vectors(scale):
    gram = scale * np.ones((4, 4))
    assert_optimal(gram, min_norm_weights(gram))


def test_zero_vectors_share_the_weight():
    np.testing.assert_array_equal(min_norm_weights(np.zeros((3, 3))), np.full(3, 1 / 3))
    np.testing.assert_array_equal(min_norm_weights(np.diag([0.0, 1.0, 0.0])), [0.5, 0, 0.5])


def test_single_precision_products():
    for seed in range(20):
        vectors = np.random.default_rng(seed).standard_normal((5, 5000)).astype(np.float32) + np.float32(0.3)
        gram = gram_of(vectors)
        exact = gram_of(vectors.astype(np.float64))
        assert_optimal(exact, min_norm_weights(gram), tolerance=1e-4)


def test_the_input_is_left_alone():
    gram = gram_of(np.random.default_rng(0).standard_normal((4, 4)))
    before = gram.copy()
    min_norm_weights(gram)
    np.testing.assert_array_equal(gram, before)


@pytest.mark.parametrize(
    ("gram", "complaint"),
    [
        (np.ones((2, 3)), "square"),
        (np.ones(3), "square"),
        (np.empty((0, 0)), "square"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), "finite"),
        (np.array([[1.0, 0.5], [0.1, 1.0]]), "symmetric"),
        (np.array([[-1.0, 0.0], [0.0, 1.0]]), "symmetric"),
        (np.array([[1.0, 3.0], [3.0, 1.0]]), "semidefinite"),
    ],
)
def test_bad_input_is_named(gram, complaint):
    with pytest.raises(InputError, match=f"Parameter `gram` should be .*{complaint}"):
        min_norm_weights(gram)
