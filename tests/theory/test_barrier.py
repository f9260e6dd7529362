"""What the value of Φ says about the smallest slack."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhv.methods.weights import log_hypervolume
from fedhv.support.errors import InputError
from fedhv.theory import barrier_level, barrier_sandwich, log_largest_product, loss_ceiling, slack_floor

from .cases import deterministic, powers, safe_points, vectors


def test_largest_product_by_hand():
    assert np.exp(log_largest_product([2.0, 3.0, 5.0])) == pytest.approx(15)
    assert log_largest_product([7.0]) == 0
    assert np.exp(log_largest_product([0.5, 0.1])) == pytest.approx(0.5)


@given(point=safe_points())
@deterministic
def test_the_floor_is_below_every_slack(point):
    f, r = point
    floor = slack_floor(log_hypervolume(f, r), r)
    assert floor <= (r - f).min() * (1 + 1e-9)
    assert (f <= loss_ceiling(log_hypervolume(f, r), r) + 1e-9 * r).all()


@given(s=vectors(powers(-6, 6)), room=st.lists(st.floats(1, 10), min_size=6, max_size=6))
@deterministic
def test_the_barrier_sandwich(s, room):
    """For any caps above the slacks, not the reference alone."""
    caps = s * np.array(room[: len(s)])
    value = -np.log(s).sum()
    low, high = barrier_sandwich(s, caps)
    slip = 1e-9 * (1 + np.abs(np.log(s)).sum() + np.abs(np.log(caps)).sum())
    assert low <= value + slip
    assert value <= high + slip
    assert slack_floor(value, caps) <= s.min() * (1 + 1e-9)


def test_equal_slacks_attain_the_upper_side():
    s = np.full(4, 0.3)
    assert barrier_sandwich(s, s)[1] == pytest.approx(-np.log(s).sum())


def test_full_caps_attain_the_floor_and_the_lower_side():
    caps = np.array([2.0, 3.0, 1.5])
    s = np.array([2.0, 3.0, 0.2])  # the smallest slack belongs to the smallest cap
    value = -np.log(s).sum()
    assert slack_floor(value, caps) == pytest.approx(0.2)
    assert barrier_sandwich(s, caps)[0] == pytest.approx(value)


@pytest.mark.parametrize("s", [1e-6, 1.0, 1e6])
def test_one_task_attains_the_floor(s):
    assert slack_floor(-np.log(s), [10 * s]) == pytest.approx(s)
    assert barrier_level([s]) == pytest.approx(-np.log(s))


def test_many_tasks_do_not_overflow():
    caps = np.full(500, 1e3)
    assert np.isfinite(log_largest_product(caps))
    assert slack_floor(-500 * np.log(1e3), caps) == pytest.approx(1e3)


@pytest.mark.parametrize("call", [lambda: slack_floor(1.0, [1.0, 0.0]), lambda: barrier_level([-1.0])])
def test_bad_input_is_named(call):
    with pytest.raises(InputError, match=r"^Parameter `\w+` should be positive"):
        call()
