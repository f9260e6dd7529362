"""Nash welfare and local proportional fairness."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhv.methods.weights import log_hypervolume
from fedhv.support.errors import InputError
from fedhv.theory import (
    expected_fairness_gap_bound,
    gradient_by_identity,
    nash_welfare,
    proportional_fairness_gap,
    relative_slack_change,
)

from .cases import deterministic, safe_points


@given(point=safe_points())
@deterministic
def test_welfare_is_the_log_of_the_slack_product(point):
    f, r = point
    assert nash_welfare(f, r) == pytest.approx(-log_hypervolume(f, r))
    assert nash_welfare(f, r) == pytest.approx(np.log(r - f).sum(), abs=1e-9)


@given(seed=st.integers(0, 10**6), dimensions=st.integers(1, 8), free=st.integers(1, 8))
@deterministic
def test_the_gap_is_the_largest_gain_over_feasible_directions(seed, dimensions, free):
    rng = np.random.default_rng(seed)
    gradient = rng.standard_normal(dimensions)
    feasible = rng.standard_normal((free, dimensions))
    gap = proportional_fairness_gap(gradient, feasible)
    assert gap <= proportional_fairness_gap(gradient) * (1 + 1e-12)
    assert proportional_fairness_gap(gradient) == pytest.approx(np.linalg.norm(gradient))
    directions = rng.standard_normal((200, free)) @ feasible
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    assert (directions @ gradient).max() <= gap * (1 + 1e-9)
    # The projection of the gradient attains the supremum.
    best = feasible.T @ np.linalg.lstsq(feasible.T, gradient, rcond=None)[0]
    if np.linalg.norm(best) > 1e-9:
        assert best @ gradient / np.linalg.norm(best) == pytest.approx(gap, rel=1e-6)


def test_frozen_parameters_are_not_feasible():
    assert proportional_fairness_gap([3.0, 4.0, 12.0], np.eye(3)[:2]) == pytest.approx(5)
    assert proportional_fairness_gap([3.0, 4.0, 12.0]) == pytest.approx(13)
    assert proportional_fairness_gap([3.0, 4.0], np.zeros((1, 2))) == 0


def test_relative_slack_change_by_finite_differences():
    rng = np.random.default_rng(0)
    centres, r = rng.standard_normal((3, 4)), np.array([6.0, 8.0, 9.0])
    x, d = 0.1 * rng.standard_normal(4), rng.standard_normal(4)

    def losses(x):
        return ((x - centres) ** 2).sum(axis=1) / 2

    h = 1e-6
    change = (nash_welfare(losses(x + h * d), r) - nash_welfare(losses(x - h * d), r)) / (2 * h)
    jacobian = x - centres
    assert relative_slack_change(jacobian, losses(x), r, d) == pytest.approx(change, abs=1e-8)
    gradient = gradient_by_identity(jacobian, losses(x), r)
    assert abs(relative_slack_change(jacobian, losses(x), r, d)) <= proportional_fairness_gap(
        gradient
    ) * np.linalg.norm(d)


def test_no_direction_gains_at_a_stationary_point():
    jacobian = np.array([[1.0, -2.0], [-0.5, 1.0]])  # slacks 1 and 1/2: ∇Φ = g₁ + 2g₂ = 0
    for d in np.random.default_rng(1).standard_normal((20, 2)):
        assert relative_slack_change(jacobian, [1.0, 1.0], [2.0, 1.5], d) == pytest.approx(0, abs=1e-12)


def test_expected_gap_bound():
    """Jensen: the mean norm is at most the root of the mean square, with equality for one norm."""
    norms = np.random.default_rng(2).uniform(0, 3, 100)
    assert norms.mean() <= expected_fairness_gap_bound((norms**2).mean())
    assert expected_fairness_gap_bound(2.0**2) == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda: nash_welfare([2.0], [1.0]),
        lambda: nash_welfare([-2.0], [1.0]),
        lambda: expected_fairness_gap_bound(-1.0),
        lambda: proportional_fairness_gap([1.0, 2.0], np.ones((1, 3))),
    ],
)
def test_bad_input_is_named(call):
    with pytest.raises(InputError, match=r"^Parameter `\w+` should "):
        call()
