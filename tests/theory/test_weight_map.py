"""Stability of the inverse-slack weight map."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedhv.methods.weights import inverse_slack_weights
from fedhv.support.errors import InputError
from fedhv.theory import (
    attained_weight_lipschitz,
    linearisation_bound,
    linearisation_error,
    weight_jacobian,
    weight_jacobian_bound,
    weight_lipschitz,
    weight_second_derivative_bound,
    weight_second_derivatives,
)

from .cases import deterministic, powers, vectors

ROUNDING = 1e-9


def torch_map(a):
    return (1 / a) / (1 / a).sum()


def operator_norm(jacobian):
    """‖J‖_{∞→1}, exactly: the largest over all sign vectors."""
    return max(np.abs(jacobian @ np.array(s)).sum() for s in itertools.product([-1.0, 1.0], repeat=len(jacobian)))


@given(a=vectors(powers(-3, 3)))
@deterministic
def test_derivatives_agree_with_autograd(a):
    t = torch.tensor(a)
    jacobian = torch.autograd.functional.jacobian(torch_map, t).numpy()
    scale = 1 / a.min()
    np.testing.assert_allclose(weight_jacobian(a), jacobian, rtol=1e-9, atol=1e-13 * scale)
    second = torch.stack([torch.autograd.functional.hessian(lambda x, i=i: torch_map(x)[i], t) for i in range(len(a))])
    np.testing.assert_allclose(weight_second_derivatives(a), second.numpy(), rtol=1e-9, atol=1e-13 * scale**2)


@given(a=vectors(powers(-12, 12), most=8))
@deterministic
def test_derivative_sums_are_bounded(a):
    assert np.abs(weight_jacobian(a)).sum() <= weight_jacobian_bound(a) * (1 + ROUNDING)
    assert np.abs(weight_second_derivatives(a)).sum() <= weight_second_derivative_bound(a) * (1 + ROUNDING)


@pytest.mark.parametrize("m", [1, 2, 3, 10, 400])
def test_first_derivative_sum_of_equal_slacks(m):
    """2(1 − 1/m)/a: the bound is the limit of many tasks."""
    a = np.full(m, 0.37)
    assert np.abs(weight_jacobian(a)).sum() == pytest.approx((1 - 1 / m) * weight_jacobian_bound(a))


def test_second_derivative_bound_is_the_limit_of_many_equal_slacks():
    ratios = [
        np.abs(weight_second_derivatives(np.full(m, 3.0))).sum() / weight_second_derivative_bound(np.full(m, 3.0))
        for m in (5, 20, 80)
    ]
    assert ratios == sorted(ratios)
    assert ratios[-1] > 0.95


def test_constants_by_hand():
    assert weight_lipschitz(0.5) == 4
    assert attained_weight_lipschitz(0.5) == 2
    assert weight_jacobian_bound([3.0, 0.5]) == 4
    assert weight_second_derivative_bound([3.0, 0.5]) == 32


@given(
    r=vectors(powers(-3, 3)),
    floor=powers(-6, 1),
    moves=st.lists(st.floats(-2, 3), min_size=12, max_size=12),
)
@deterministic
def test_the_map_is_lipschitz_everywhere(r, floor, moves):
    """Losses on both sides of the floor and of the reference."""
    z, z1 = r * np.array(moves[: len(r)]), r * np.array(moves[6 : 6 + len(r)])
    change = np.abs(inverse_slack_weights(z, r, floor) - inverse_slack_weights(z1, r, floor)).sum()
    distance = np.abs(z - z1).max()
    assert change <= weight_lipschitz(floor) * distance + 1e-12
    assert change <= attained_weight_lipschitz(floor) * distance + 1e-12


@given(r=vectors(powers(-3, 3)), floor=powers(-3, 1), shares=st.lists(st.floats(-1, 1), min_size=12, max_size=12))
@deterministic
def test_the_map_is_lipschitz_near_the_floor(r, floor, shares):
    """Slacks within a hair of the floor, where the constant matters."""
    s, s1 = (floor * (1 + 0.1 * np.array(x[: len(r)])) for x in (shares[:6], shares[6:]))
    change = np.abs(inverse_slack_weights(r - s, r, floor) - inverse_slack_weights(r - s1, r, floor)).sum()
    assert change <= attained_weight_lipschitz(floor) * np.abs(s - s1).max() + 1e-9


@pytest.mark.parametrize("floor", [1e-6, 0.5, 1e3])
def test_the_attained_constant_is_attained(floor):
    """Two tasks at the floor, moved apart: ‖ΔW‖₁ = ‖Δz‖∞/ρ in the limit."""
    r = np.array([2 * floor, 2 * floor])
    # Slacks ρ(1 ± h) keep both just above a floor that is lowered by as much.
    h = 1e-4
    low = floor * (1 - h)
    up, down = r - floor * np.array([1 + h, 1 - h]), r - floor * np.array([1 - h, 1 + h])
    change = np.abs(inverse_slack_weights(up, r, low) - inverse_slack_weights(down, r, low)).sum()
    assert change / (2 * h * floor) == pytest.approx(attained_weight_lipschitz(floor), rel=1e-6)


@given(a=vectors(powers(-6, 6)))
@deterministic
def test_jacobian_as_an_operator(a):
    norm = operator_norm(weight_jacobian(a))
    assert norm <= weight_lipschitz(a.min()) * (1 + ROUNDING)
    assert norm <= attained_weight_lipschitz(a.min()) * (1 + ROUNDING)


def test_jacobian_norm_of_an_even_number_of_equal_slacks_is_the_attained_constant():
    for m in (2, 4, 8):
        a = np.full(m, 0.2)
        assert operator_norm(weight_jacobian(a)) == pytest.approx(attained_weight_lipschitz(0.2))


@given(
    a=vectors(powers(-3, 3)),
    shares=st.lists(st.floats(-0.9, 3), min_size=6, max_size=6),
    size=powers(-3, 0),
)
@deterministic
def test_second_order_remainder_is_bounded(a, shares, size):
    r = 2 * a
    z = r - a
    moved = r - a * (1 + size * np.array(shares[: len(a)]))
    floor = 1e-3 * min(a.min(), (r - moved).min())
    left, right = linearisation_error(moved, z, r, floor), linearisation_bound(moved, z, r, floor)
    assert left <= right * (1 + ROUNDING) + 1e-12


def test_second_order_remainder_by_hand():
    """W = (s₂, s₁)/(s₁ + s₂): slacks (1, 1) to (1/2, 1) move the weights by (1/6, −1/6), the tangent by (1/8, −1/8)."""
    losses, at, r = [1.5, 1.0], [1.0, 1.0], [2.0, 2.0]
    assert linearisation_error(losses, at, r, 0.1) == pytest.approx(2 * (1 / 6 - 1 / 8))
    assert linearisation_bound(losses, at, r, 0.1) == pytest.approx(4 / 0.5**2 * 0.5**2)


def test_second_order_remainder_is_of_second_order():
    r, z = np.array([1.0, 2.0, 4.0]), np.array([0.3, 0.4, 1.0])
    direction = np.array([1.0, -1.0, 0.5])
    errors = [linearisation_error(z + h * direction, z, r, 1e-6) for h in (1e-2, 1e-3)]
    assert errors[0] / errors[1] == pytest.approx(100, rel=0.05)
    assert errors[0] > 0


@given(r=vectors(powers(-3, 3)), floor=powers(-3, 0), shares=st.lists(st.floats(0, 0.99), min_size=12, max_size=12))
@deterministic
def test_local_constant(r, floor, shares):
    """Slacks at least ρ̃ at both ends: the constant is 2/ρ̃, whatever the floor."""
    z, z1 = r * np.array(shares[: len(r)]), r * np.array(shares[6 : 6 + len(r)])
    margin = min((r - z).min(), (r - z1).min())
    floor = min(floor, margin)
    change = np.abs(inverse_slack_weights(z, r, floor) - inverse_slack_weights(z1, r, floor)).sum()
    assert change <= weight_lipschitz(margin) * np.abs(z - z1).max() + 1e-12


@pytest.mark.parametrize(
    "call",
    [
        lambda: weight_jacobian([1.0, 0.0]),
        lambda: weight_jacobian([1.0, -2.0]),
        lambda: weight_jacobian([[1.0], [2.0]]),
        lambda: weight_second_derivatives([np.nan]),
        lambda: weight_jacobian_bound([]),
        lambda: weight_lipschitz(0.0),
        lambda: weight_lipschitz(float("inf")),
        lambda: attained_weight_lipschitz(-1.0),
        lambda: linearisation_error([0.5, 1.5], [0.5, 0.5], [1.0, 1.0], 0.1),
        lambda: linearisation_bound([0.5, 0.95], [0.5, 0.5], [1.0, 1.0], 0.1),
        lambda: linearisation_bound([0.5], [0.5, 0.5], [1.0, 1.0], 0.1),
    ],
)
def test_bad_input_is_named(call):
    with pytest.raises(InputError, match=r"^Parameter `\w+` should .*Found `\w+"):
        call()
