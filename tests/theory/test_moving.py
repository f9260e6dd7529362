"""FedHV with a reference that follows: what of the theory holds, and what does not."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedhv import InputError, State
from fedhv.methods import make_method
from fedhv.theory import (
    decayed_deviation,
    is_gradient_field,
    moving_level,
    moving_peaks,
    moving_references,
    moving_slack_floor,
    moving_staleness_bound,
    moving_staleness_of_run,
    moving_weight_bounds,
    moving_weight_lipschitz,
    moving_weights,
)

from .cases import deterministic, powers

FACTORS = st.floats(1.01, 20)
DECAYS = st.sampled_from([0.0, 0.5, 0.9, 1.0])
SEEDS = st.integers(0, 10**6)
SCOPES = ("common", "own")


def losses(seed, rounds=6, tasks=3, scale=1.0):
    return scale * np.random.default_rng(seed).uniform(0.01, 3, (rounds, tasks))


def test_references_and_weights_by_hand():
    f = np.array([[8.0, 1.0], [1.0, 3.0]])
    np.testing.assert_allclose(moving_peaks(f, 0.5), [[8, 1], [4, 3]])
    np.testing.assert_allclose(moving_references(f, 2.0, 0.5), [[16, 16], [8, 8]])
    np.testing.assert_allclose(moving_references(f, 2.0, 0.5, "own"), [[16, 2], [8, 6]])
    np.testing.assert_allclose(moving_weights(f, 2.0, 0.5), [[15 / 23, 8 / 23], [5 / 12, 7 / 12]])
    np.testing.assert_allclose(moving_level([4.0, 3.0]), 4)
    np.testing.assert_allclose(moving_level([4.0, 3.0], "own"), 3)
    assert moving_slack_floor(1.5, 4.0) == 2
    assert moving_weight_lipschitz(3.0, 0.5) == 4
    assert moving_staleness_bound(0.1, 0.2, 3.0, 0.5) == pytest.approx(1.2)
    assert moving_weight_bounds(2.0, 3) == (1 / 5, 2 / 4)
    assert decayed_deviation([8.0, 1.0, 3.0], 0.5) == 3


@given(seed=SEEDS, factor=FACTORS, decay=DECAYS, scale=powers(-6, 6))
@deterministic
def test_slacks_are_positive_by_construction(seed, factor, decay, scale):
    f = losses(seed, scale=scale)
    for scope in SCOPES:
        slack = moving_references(f, factor, decay, scope) - f
        level = moving_level(moving_peaks(f, decay), scope)
        for row, phi in zip(slack, level, strict=True):
            assert row.min() >= moving_slack_floor(factor, phi) * (1 - 1e-9) > 0


@given(seed=SEEDS, factor=FACTORS, decay=DECAYS)
@deterministic
def test_the_theory_has_the_methods_own_weights(seed, factor, decay):
    f = losses(seed)
    for scope in SCOPES if decay > 0 else SCOPES[:1]:
        method, memory = make_method("fedhv-moving", {"factor": factor, "decay": decay, "scope": scope}), {}
        expected = moving_weights(f, factor, decay, scope)
        for row, wanted in zip(f, expected, strict=True):
            state = State(torch.zeros(1), torch.full((3,), 1 / 3), memory)
            weights, memory = method.weigh(torch.from_numpy(row), state)
            np.testing.assert_allclose(weights.numpy(), wanted, rtol=1e-9)


@given(seed=SEEDS, factor=FACTORS, size=powers(-6, 0))
@deterministic
def test_the_weights_are_lipschitz_in_the_losses(seed, factor, size):
    f = losses(seed, rounds=1)
    g = f * (1 + size * np.random.default_rng(seed + 1).uniform(-0.9, 0.9, f.shape))
    level = min(f.max(), g.max())
    change = np.abs(moving_weights(f, factor) - moving_weights(g, factor)).sum()
    assert change <= moving_weight_lipschitz(factor, level) * np.abs(f - g).max() + 1e-12


def test_the_constant_is_of_the_right_order():
    """Two equal losses of which one rises: more than a quarter of the bound for factors near one."""
    factor, h = 1.01, 1e-7
    f, g = np.array([[1.0, 1.0]]), np.array([[1.0 + h, 1.0 - h]])
    change = np.abs(moving_weights(f, factor) - moving_weights(g, factor)).sum()
    assert change / (moving_weight_lipschitz(factor, 1.0) * h) > 0.25


def test_the_constant_grows_as_the_losses_fall():
    assert moving_weight_lipschitz(2.0, 0.01) == pytest.approx(100 * moving_weight_lipschitz(2.0, 1.0))
    f = losses(0)
    np.testing.assert_allclose(
        moving_weights(f, 2.0), moving_weights(0.01 * f, 2.0)
    )  # relative changes are what counts


@given(seed=SEEDS, decay=DECAYS, size=powers(-4, 0))
@deterministic
def test_the_maxima_of_two_histories_are_no_further_apart_than_the_histories(seed, decay, size):
    f = losses(seed)
    g = np.abs(f + size * np.random.default_rng(seed + 1).uniform(-1, 1, f.shape))
    apart = np.abs(moving_peaks(f, decay) - moving_peaks(g, decay)).max(axis=1)
    gaps = np.abs(f - g).max(axis=1)
    for t in range(len(f)):
        assert apart[t] <= decayed_deviation(gaps[: t + 1], decay) + 1e-12


@given(seed=SEEDS, factor=FACTORS, decay=DECAYS, noise=powers(-4, 0))
@deterministic
def test_measured_staleness_is_bounded(seed, factor, decay, noise):
    truth = losses(seed, rounds=8)
    reports = np.abs(truth + noise * np.random.default_rng(seed + 1).standard_normal(truth.shape))
    for scope in SCOPES:
        weights = np.vstack([np.full((1, 3), 1 / 3), moving_weights(reports, factor, decay, scope)[:-1]])
        staleness = moving_staleness_of_run(weights, reports, truth, factor, decay, scope)
        assert (staleness.measured <= staleness.bound * (1 + 1e-9) + 1e-12).all()


def test_staleness_without_decay_is_the_two_term_bound():
    truth = np.array([[1.0, 2.0], [1.5, 1.0], [0.5, 0.25]])
    reports = truth + np.array([[0.1, -0.2], [0.0, 0.0], [0.0, 0.0]])
    weights = np.vstack([[0.5, 0.5], moving_weights(reports, 3.0)[:-1]])
    staleness = moving_staleness_of_run(weights, reports, truth, 3.0)
    # levels: report 1.8 against 2; movement 1.5, then 0.5
    np.testing.assert_allclose(staleness.report_term, [0, (3 * 0.2 + 0.2) / (2 * 1.8), 0])
    np.testing.assert_allclose(staleness.movement_term, [0, 4 * 1.0 / (2 * 1.5), 4 * 1.0 / (2 * 0.5)])
    assert staleness.bound[0] == 2
    assert staleness.bound[1] <= moving_staleness_bound(0.2, 1.0, 3.0, 1.5) * (1 + 1e-12)


@given(seed=SEEDS, factor=FACTORS, decay=DECAYS, tasks=st.integers(1, 6))
@deterministic
def test_every_weight_stays_between_bounds_of_the_factor_alone(seed, factor, decay, tasks):
    w = moving_weights(losses(seed, tasks=tasks), factor, decay)
    least, most = moving_weight_bounds(factor, tasks)
    assert w.min() >= least * (1 - 1e-9)
    assert w.max() <= most * (1 + 1e-9)


@pytest.mark.parametrize("factor", [1.1, 2.0, 50.0])
def test_the_bounds_on_weights_are_attained(factor):
    least, most = moving_weight_bounds(factor, 3)
    assert moving_weights([[0.0, 1.0, 1.0]], factor)[0, 0] == pytest.approx(least)
    assert moving_weights([[1.0, 0.0, 0.0]], factor)[0, 0] == pytest.approx(most)


def test_the_bounds_on_weights_have_the_limits_of_the_knob():
    np.testing.assert_allclose(moving_weight_bounds(1e9, 4), 0.25, rtol=1e-6)
    np.testing.assert_allclose(moving_weight_bounds(1 + 1e-9, 4), [0, 1], atol=1e-6)


def jacobian(field, at, h=1e-6):
    columns = [(field(at + h * e) - field(at - h * e)) / (2 * h) for e in np.eye(len(at))]
    return np.stack(columns, axis=1)


def test_a_moving_reference_has_no_objective_and_a_frozen_one_has():
    f = np.array([0.5, 1.0, 0.7])
    assert is_gradient_field(jacobian(lambda z: 1 / (2.0 - z), f))
    assert not is_gradient_field(jacobian(lambda z: 1 / (2.0 * z.max() - z), f))


@pytest.mark.parametrize(
    "call",
    [
        lambda: moving_peaks([1.0, 2.0], 0.5),
        lambda: moving_peaks([[1.0, 2.0]], 1.5),
        lambda: moving_peaks([[1.0, -2.0]], 0.5),
        lambda: moving_references([[1.0, 2.0]], 1.0),
        lambda: moving_weight_lipschitz(0.5, 1.0),
        lambda: moving_weight_lipschitz(2.0, 0.0),
        lambda: moving_weight_bounds(2.0, 0),
        lambda: moving_staleness_bound(-1.0, 0.0, 2.0, 1.0),
        lambda: moving_staleness_of_run([[0.5, 0.5]], [[1.0, 1.0]] * 2, [[1.0, 1.0]] * 2, 2.0),
        lambda: decayed_deviation([-1.0], 0.5),
        lambda: is_gradient_field([1.0, 2.0]),
    ],
)
def test_bad_input_is_named(call):
    with pytest.raises(InputError, match=r"^Parameters? `\w+`.* should .*Found"):
        call()
