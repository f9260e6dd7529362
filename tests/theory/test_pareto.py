"""The Pareto residual and its bound by the gradient of Φ."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from fedhv.support.errors import InputError
from fedhv.theory import (
    gradient_by_identity,
    mean_squared_residual_bound,
    pareto_residual,
    residual_bound,
    single_objective_bound,
    uniform_residual_bound,
)

from .cases import deterministic, powers, safe_points


def quadratic_programme(jacobian):
    """min ‖λᵀJ‖ over the simplex by a general solver."""
    m = len(jacobian)
    gram = jacobian @ jacobian.T
    solution = minimize(
        lambda x: x @ gram @ x,
        np.full(m, 1 / m),
        jac=lambda x: 2 * gram @ x,
        bounds=[(0, 1)] * m,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1, "jac": lambda x: np.ones(m)},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    x = np.maximum(solution.x, 0)
    return np.linalg.norm(x / x.sum() @ jacobian)


@pytest.mark.parametrize("m", range(1, 11))
def test_residual_agrees_with_a_quadratic_programme(m):
    for seed in range(6):
        rng = np.random.default_rng([m, seed])
        jacobian = rng.standard_normal((m, 20)) + (seed % 2) * rng.standard_normal(20)
        residual = pareto_residual(jacobian)
        assert residual.value == pytest.approx(quadratic_programme(jacobian), rel=1e-6)
        assert residual.value == pytest.approx(np.linalg.norm(residual.weights @ jacobian), rel=1e-12)
        # First-order optimality, which at a convex problem proves it.
        combination = residual.weights @ jacobian
        assert (jacobian @ combination).min() >= residual.value**2 * (1 - 1e-9)


@given(seed=st.integers(0, 10**6), m=st.integers(1, 6), scale=powers(-150, 150))
@deterministic
def test_no_weights_do_better(seed, m, scale):
    rng = np.random.default_rng(seed)
    jacobian = rng.standard_normal((m, 4))
    residual = pareto_residual(scale * jacobian).value / scale
    for weights in rng.dirichlet(np.ones(m), 30):
        assert residual <= np.linalg.norm(weights @ jacobian) * (1 + 1e-9)
    assert residual <= np.linalg.norm(jacobian, axis=1).min() * (1 + 1e-9)


def test_residual_keeps_its_digits_near_zero():
    """Three gradients around the origin at a tilt of 1e-11: the root of a Gram's value would be noise."""
    flat = np.array([[1.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]])
    jacobian = np.column_stack([flat, np.full(3, 1e-11)])
    assert pareto_residual(jacobian).value == pytest.approx(1e-11, rel=1e-3)


def test_tensors_and_arrays_agree():
    jacobian = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    assert pareto_residual(jacobian).value == pytest.approx(pareto_residual(jacobian.numpy()).value, rel=1e-12)


def test_zero_gradients():
    residual = pareto_residual(np.zeros((3, 5)))
    assert residual.value == 0
    np.testing.assert_allclose(residual.weights, 1 / 3)
    assert pareto_residual([[0.0, 0.0], [1.0, 2.0]]).value == 0
    assert pareto_residual(np.zeros((2, 0))).value == 0


@given(point=safe_points(), seed=st.integers(0, 10**6))
@deterministic
def test_residual_is_bounded_by_the_gradient_of_phi(point, seed):
    f, r = point
    jacobian = np.random.default_rng(seed).standard_normal((len(f), 5))
    norm = np.linalg.norm(gradient_by_identity(jacobian, f, r))
    residual = pareto_residual(jacobian).value
    assert residual <= residual_bound(norm, f, r) * (1 + 1e-9)
    assert residual_bound(norm, f, r) <= uniform_residual_bound(norm, r) * (1 + 1e-9)


@given(point=safe_points(most=1), g=powers(-6, 6))
@deterministic
def test_one_task_attains_the_bound(point, g):
    f, r = point
    norm = abs(gradient_by_identity([[g]], f, r)[0])
    assert pareto_residual([[g]]).value == pytest.approx(residual_bound(norm, f, r))
    assert g <= single_objective_bound(norm, r[0]) * (1 + 1e-9)


def test_zero_losses_attain_the_uniform_bound():
    r = np.array([2.0, 3.0])
    assert residual_bound(1.7, [0.0, 0.0], r) == pytest.approx(uniform_residual_bound(1.7, r))
    assert single_objective_bound(2.0, 3.0) == pytest.approx(6)


def test_orthogonal_gradients_attain_the_bound_where_slacks_match_squared_norms():
    """The min-norm weights of orthogonal gradients are ∝ ‖g‖⁻²: slacks ∝ ‖g‖² make them the ideal weights."""
    jacobian = np.diag([1.0, 2.0, 3.0])
    r = np.array([10.0, 11.0, 12.0])
    f = r - np.array([1.0, 4.0, 9.0]) / 3
    norm = np.linalg.norm(gradient_by_identity(jacobian, f, r))
    assert pareto_residual(jacobian).value == pytest.approx(residual_bound(norm, f, r))


def test_stationary_for_phi_is_pareto_stationary():
    jacobian = np.array([[1.0, -2.0], [-0.5, 1.0]])
    assert np.linalg.norm(gradient_by_identity(jacobian, [1.0, 1.0], [2.0, 1.5])) == 0
    assert pareto_residual(jacobian).value == pytest.approx(0, abs=1e-15)


def test_averaged_form():
    """Term by term over rounds, hence on average."""
    rng = np.random.default_rng(0)
    r = np.array([2.0, 3.0, 1.0])
    residuals, squares = [], []
    for _ in range(50):
        f, jacobian = r * rng.uniform(0, 0.99, 3), rng.standard_normal((3, 6))
        squares.append(np.linalg.norm(gradient_by_identity(jacobian, f, r)) ** 2)
        residuals.append(pareto_residual(jacobian).value ** 2)
    assert np.mean(residuals) <= mean_squared_residual_bound(np.mean(squares), r)
    assert mean_squared_residual_bound(9.0, [0.5, 1.0]) == pytest.approx(1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: pareto_residual(np.ones(3)),
        lambda: pareto_residual(np.ones((0, 3))),
        lambda: pareto_residual([[1.0, np.nan]]),
        lambda: pareto_residual(torch.tensor([[1.0, float("inf")]])),
        lambda: residual_bound(-1.0, [0.1], [1.0]),
        lambda: residual_bound(1.0, [-0.1], [1.0]),
        lambda: residual_bound(1.0, [1.1], [1.0]),
        lambda: uniform_residual_bound(1.0, [0.0]),
        lambda: mean_squared_residual_bound(float("nan"), [1.0]),
    ],
)
def test_bad_input_is_named(call):
    with pytest.raises(InputError, match=r"^Parameter `\w+` should "):
        call()
