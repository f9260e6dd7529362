"""Mean ± sample standard deviation over seeds, and who is best."""

import math

import pytest

from fedhv.support.statistics import Paired, Spread, ranks


def test_the_deviation_is_the_samples_not_the_populations():
    # 1, 2, 6: mean 3, squared deviations 4 + 1 + 9 = 14, over n − 1 = 2: √7
    spread = Spread.of([1.0, 2.0, 6.0])
    assert spread.mean == 3.0
    assert spread.deviation == pytest.approx(7**0.5)
    assert spread.text() == "3.00 ± 2.65"


def test_one_run_has_no_deviation():
    assert Spread.of([90.168]).deviation is None
    assert Spread.of([90.168]).text() == "90.17"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([math.nan, 1.0], "nan"),
        ([math.inf, 1.0], "inf"),
        ([-math.inf, 1.0], "-inf"),
        ([math.inf, -math.inf], "nan"),
        ([math.nan], "nan"),
    ],
)
def test_runs_that_are_not_all_finite_have_no_deviation(values, text):
    spread = Spread.of(values)
    assert (spread.text(), spread.deviation, spread.count) == (text, None, len(values))


def test_numbers_whose_sum_is_too_large_still_have_a_mean():
    assert Spread.of([1.6e308, 1.6e308, 1.6e308]).mean == pytest.approx(1.6e308)


def test_the_best_is_the_highest_or_the_lowest():
    means = {"a": 0.5, "b": 0.7, "c": 0.6}
    assert ranks(means) == {"b": 1, "c": 2, "a": 3}
    assert ranks(means, higher_is_better=False) == {"a": 1, "c": 2, "b": 3}


def test_rankings_come_from_unrounded_means_and_equals_share_the_better_rank():
    assert ranks({"a": 90.001, "b": 90.002, "c": 90.002}) == {"b": 1, "c": 1, "a": 3}


def test_the_mean_difference_has_students_interval():
    # 1, 2, 3: mean 2, deviation 1, and Student's quantile of two degrees of freedom, 4.302653, over √3: ± 2.484138
    paired = Paired.of([1.0, 2.0, 3.0])
    assert (paired.mean, paired.count) == (2.0, 3)
    assert (paired.low, paired.high) == (pytest.approx(-0.484138, abs=1e-6), pytest.approx(4.484138, abs=1e-6))
    assert not paired.clear
    assert Paired.of([1.0, 2.0, 3.0], confidence=0.8).clear  # ± 1.886/√3
    assert Paired.of([-1.0, -2.0, -3.0], confidence=0.8).clear
