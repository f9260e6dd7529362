"""The two-term bound on the staleness of weights."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhv.methods.weights import inverse_slack_weights
from fedhv.support.errors import InputError
from fedhv.theory import expected_squared_staleness_bound, staleness_bound, staleness_of_run

from .cases import deterministic, powers


def run(seed, tasks, rounds, floor, *, noise=0.1, safe=True):
    """Reports, losses and the weights that FedHV makes of the reports, one round late."""
    rng = np.random.default_rng(seed)
    r = rng.uniform(1, 3, tasks)
    losses = r * rng.uniform(0, 0.95 if safe else 1.3, (rounds, tasks))
    reports = np.maximum(losses + noise * rng.standard_normal((rounds, tasks)), 0)
    weights = np.vstack([np.full((1, tasks), 1 / tasks), inverse_slack_weights(reports[:-1], r, floor)])
    return weights, reports, losses, r


@given(
    seed=st.integers(0, 10**6), tasks=st.integers(1, 5), floor=powers(-4, -1), noise=powers(-4, 0), safe=st.booleans()
)
@deterministic
def test_measured_staleness_is_bounded(seed, tasks, floor, noise, safe):
    weights, reports, losses, r = run(seed, tasks, 8, floor, noise=noise, safe=safe)
    for local in (False, True):
        staleness = staleness_of_run(weights, reports, losses, r, floor, local=local)
        assert (staleness.measured <= staleness.bound * (1 + 1e-9) + 1e-12).all()
    whole = staleness_of_run(weights, reports, losses, r, floor)
    assert (staleness.bound <= whole.bound * (1 + 1e-12)).all()


def test_terms_by_hand():
    floor = 0.5
    losses = np.array([[1.0, 1.0], [1.5, 1.2], [1.4, 0.2]])
    reports = np.array([[1.1, 0.7], [1.5, 1.2], [0.0, 0.0]])
    r = np.array([2.0, 2.0])
    weights = np.array([[0.5, 0.5], *inverse_slack_weights(reports[:2], r, floor)])
    staleness = staleness_of_run(weights, reports, losses, r, floor)
    np.testing.assert_allclose(staleness.report_term, [0, 4 * 0.3, 0])
    np.testing.assert_allclose(staleness.movement_term, [0, 4 * 0.5, 4 * 1.0])
    np.testing.assert_allclose(staleness.bound, [2, 3.2, 4])
    ideal = inverse_slack_weights(losses, r, floor)
    np.testing.assert_allclose(staleness.measured, np.abs(weights - ideal).sum(axis=1))
    assert staleness.bound[1] == pytest.approx(staleness_bound(0.3, 0.5, floor))
    # Slacks at the two ends: (0.9, 1.3), (1, 1); and (1, 1), (0.5, 0.8).
    near = staleness_of_run(weights, reports, losses, r, floor, local=True)
    np.testing.assert_allclose(near.report_term[1], 2 / 0.9 * 0.3)
    np.testing.assert_allclose(near.movement_term[1], 2 / 0.5 * 0.5)


def test_no_error_and_no_movement_is_no_staleness():
    r = np.array([2.0, 3.0])
    losses = np.tile([1.0, 1.0], (4, 1))
    weights = inverse_slack_weights(losses, r, 1e-6)
    staleness = staleness_of_run(weights, losses, losses, r, 1e-6)
    np.testing.assert_allclose(staleness.measured, 0, atol=1e-15)
    np.testing.assert_array_equal(staleness.bound[1:], 0)


def test_each_term_can_reach_half_of_its_bound():
    """Two tasks at the floor whose losses part: the weight map's attained constant is half the lemma's."""
    floor, h = 0.5, 1e-5
    r = np.array([2.0, 2.0])
    level = r - floor * (1 + h)
    apart = level + floor * h * np.array([1, -1])
    for reports, losses in [((apart, level), (level, level)), ((level, apart), (level, apart))]:
        weights = np.array([[0.5, 0.5], inverse_slack_weights(reports[0], r, floor)])
        staleness = staleness_of_run(weights, reports, losses, r, floor)
        assert staleness.measured[1] / staleness.bound[1] == pytest.approx(0.5, rel=1e-3)


def test_first_round_comes_near_the_simplex_diameter():
    m = 200
    r, losses = np.ones(m), np.zeros((1, m))
    losses[0, 0] = 1 - 1e-9
    staleness = staleness_of_run(np.full((1, m), 1 / m), losses, losses, r, 1e-12)
    assert 1.98 < staleness.measured[0] <= staleness.bound[0] == 2


def test_expected_squared_form():
    """E‖w − w*‖₁² ≤ 2C²(Ξ + E‖ΔF‖²), over random reports and movements."""
    rng = np.random.default_rng(0)
    floor, r = 0.2, np.array([1.0, 1.5, 2.0])
    before = np.array([0.5, 0.9, 1.0])
    reports = before + 0.1 * rng.standard_normal((500, 3))
    after = before + 0.2 * rng.uniform(-1, 1, (500, 3))
    used, ideal = inverse_slack_weights(reports, r, floor), inverse_slack_weights(after, r, floor)
    square = (np.abs(used - ideal).sum(axis=1) ** 2).mean()
    xi = (np.abs(reports - before).max(axis=1) ** 2).mean()
    moved = (np.abs(after - before).max(axis=1) ** 2).mean()
    assert 0 < square <= expected_squared_staleness_bound(xi, moved, floor)
    assert expected_squared_staleness_bound(1.0, 2.0, 0.5) == 2 * 16 * 3


@pytest.mark.parametrize(
    "call",
    [
        lambda w, p, f, r: staleness_of_run(w, p, -f, r, 0.1),
        lambda w, p, f, r: staleness_of_run(w, -p, f, r, 0.1),
        lambda w, p, f, r: staleness_of_run(2 * w, p, f, r, 0.1),
        lambda w, p, f, r: staleness_of_run(w[:-1], p, f, r, 0.1),
        lambda w, p, f, r: staleness_of_run(w, p, f, r[:-1], 0.1),
        lambda w, p, f, r: staleness_of_run(w, p, f, r, 0.0),
        lambda w, p, f, r: staleness_bound(-1.0, 1.0, 0.1),
        lambda w, p, f, r: expected_squared_staleness_bound(1.0, -1.0, 0.1),
    ],
)
def test_bad_input_is_named(call):
    with pytest.raises(InputError, match=r"^Parameters? `\w+`.* should .*Found"):
        call(*run(0, 3, 4, 0.1))
