"""Objective reports: finite-population moments by enumeration, and the bound on their error."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhv.support.errors import InputError
from fedhv.theory import (
    between_client_variance,
    cohort_size,
    dispersion,
    measured_report_error,
    participation_factor,
    participation_heterogeneity,
    report_error_bound,
    report_errors,
    report_factor,
    report_moments,
    report_size,
    within_client_variance,
)

from .cases import deterministic, powers, vectors


def subset_means(values, size):
    return np.array([np.mean([values[j] for j in s], axis=0) for s in itertools.combinations(range(len(values)), size)])


@pytest.mark.parametrize("n", range(1, 8))
def test_report_moments_by_enumerating_all_subsets(n):
    values = np.random.default_rng(n).exponential(size=(n, 3))
    for size in range(1, n + 1):
        means = subset_means(values, size)
        mean, variance = report_moments(values, size)
        np.testing.assert_allclose(mean, means.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(variance, ((means - values.mean(axis=0)) ** 2).mean(axis=0), rtol=1e-9, atol=1e-30)


@pytest.mark.parametrize("clients", range(1, 7))
def test_client_sampling_by_enumerating_all_cohorts(clients):
    """E(1/M Σ_S a − ā)² = χ ω², for losses and, vector-valued, for gradients."""
    losses = np.random.default_rng(clients).exponential(size=(clients, 2))
    for cohort in range(1, clients + 1):
        error = ((subset_means(losses, cohort) - losses.mean(axis=0)) ** 2).mean(axis=0)
        factor = participation_factor(clients, cohort)
        np.testing.assert_allclose(error, factor * between_client_variance(losses), rtol=1e-9, atol=1e-30)


@given(clients=st.integers(2, 10**6), share=st.floats(0, 1))
@deterministic
def test_participation_factor(clients, share):
    cohort = max(1, round(share * clients))
    p = cohort / clients
    factor = participation_factor(clients, cohort)
    assert factor == pytest.approx((1 - p) / (p * (clients - 1)), abs=1e-12)
    assert 0 <= factor <= 1
    zeta = [0.5, 2.0]
    assert participation_heterogeneity(zeta, clients, cohort) == pytest.approx(factor * 4.25)
    assert participation_heterogeneity(zeta, clients, cohort) <= (1 - p) / p * 4.25 + 1e-12


def test_participation_factor_at_its_ends():
    assert participation_factor(10, 10) == 0
    assert participation_factor(10, 1) == 1
    assert participation_factor(1, 1) == 0
    assert report_factor(5, 5) == 0
    assert report_factor(1, 1) == 0


def test_factors_fall_with_the_sample():
    for factor in (participation_factor, report_factor):
        values = [factor(20, size) for size in range(1, 21)]
        assert values == sorted(values, reverse=True)


@pytest.mark.parametrize(("p", "expected"), [(0.1, 10), (1.0, 100), (0.01, 1), (0.3, 30), (1 / 3, None), (0.001, None)])
def test_cohort_size(p, expected):
    if expected is None:
        with pytest.raises(InputError, match="`participation` should select a whole number"):
            cohort_size(100, p)
    else:
        assert cohort_size(100, p) == expected


@pytest.mark.parametrize("p", [0.0, -0.5, 1.0001, float("nan")])
def test_participation_outside_its_range_is_named(p):
    with pytest.raises(InputError, match=r"^Parameter `participation` should lie in \(0, 1\]\. Found"):
        cohort_size(100, p)


def test_report_size():
    assert report_size(100, 0, 32) == 100
    assert report_size(100, 1, 32) == 32
    assert report_size(100, 3, 32) == 96
    assert report_size(100, 4, 32) == 100


def outcomes(data, cohort, size, coupling):
    """Every server report, equally likely: all cohorts times all joint draws under a coupling of the clients."""
    clients, examples = data.shape[:2]
    subsets = list(itertools.combinations(range(examples), size))
    for chosen in itertools.combinations(range(clients), cohort):
        if coupling == "independent":
            draws = itertools.product(subsets, repeat=cohort)
        else:  # one subset for all: errors of different clients are correlated
            draws = ((s,) * cohort for s in subsets)
        for draw in draws:
            yield np.mean([data[k, list(s)].mean(axis=0) for k, s in zip(chosen, draw, strict=True)], axis=0)


def exact_error(data, cohort, size, coupling):
    truth = data.mean(axis=(0, 1))
    return np.mean([np.abs(report - truth).max() ** 2 for report in outcomes(data, cohort, size, coupling)])


def spreads(data, size):
    """ω and τ of a federation of equal clients."""
    factors = [report_factor(data.shape[1], size)] * len(data)
    within = within_client_variance([dispersion(each) for each in data], factors)
    return np.sqrt(between_client_variance(data.mean(axis=1))), np.sqrt(within)


@pytest.mark.parametrize("coupling", ["independent", "shared"])
@pytest.mark.parametrize("tasks", [1, 3])
def test_report_error_is_bounded(coupling, tasks):
    for seed in range(4):
        rng = np.random.default_rng([tasks, seed])
        data = rng.exponential(size=(4, 3, tasks)) + rng.exponential(size=(4, 1, tasks))
        for cohort, size in [(1, 1), (2, 1), (2, 2), (3, 2), (4, 1), (4, 3)]:
            error = exact_error(data, cohort, size, coupling)
            omega, tau = spreads(data, size)
            assert error <= report_error_bound(omega, tau, 4, cohort) * (1 + 1e-9) + 1e-15
            if coupling == "independent":
                assert error <= report_error_bound(omega, tau, 4, cohort, orthogonal=True) * (1 + 1e-9) + 1e-15


def test_independent_reports_of_one_task_attain_the_orthogonal_bound():
    data = np.random.default_rng(0).exponential(size=(4, 3, 1))
    for cohort, size in [(1, 2), (2, 1), (3, 2), (4, 1)]:
        omega, tau = spreads(data, size)
        bound = report_error_bound(omega, tau, 4, cohort, orthogonal=True)
        assert exact_error(data, cohort, size, "independent") == pytest.approx(bound)


def test_equal_clients_that_err_alike_attain_the_general_bound():
    data = np.repeat(np.random.default_rng(1).exponential(size=(1, 4, 1)), 3, axis=0)
    for cohort, size in [(1, 1), (2, 2), (3, 3)]:
        omega, tau = spreads(data, size)
        assert exact_error(data, cohort, size, "shared") == pytest.approx(report_error_bound(omega, tau, 3, cohort))


def test_full_participation_with_full_reports_is_exact():
    data = np.random.default_rng(2).exponential(size=(4, 3, 2))
    omega, tau = spreads(data, 3)
    assert report_error_bound(omega, tau, 4, 4) == 0
    assert exact_error(data, 4, 3, "independent") == pytest.approx(0, abs=1e-30)


@given(omega=vectors(powers(-3, 3), least=2, most=2), tau=vectors(powers(-3, 3), least=2, most=2))
@deterministic
def test_bound_by_its_formula(omega, tau):
    chi = (10 - 4) / (4 * 9)
    assert report_error_bound(omega, tau, 10, 4) == pytest.approx((chi * omega**2 + tau**2).sum())
    assert report_error_bound(omega, tau, 10, 4, orthogonal=True) == pytest.approx((chi * omega**2 + tau**2 / 4).sum())


def test_monte_carlo_runs_stay_below_the_bound():
    """Ξ measured over 400 runs of 10 rounds, clients of different sizes, models that move."""
    rng = np.random.default_rng(3)
    runs, rounds, clients, cohort, size = 400, 10, 8, 3, 4
    base = [rng.exponential(size=(rng.integers(4, 12), 2)) + rng.exponential() for _ in range(clients)]
    decay = np.linspace(1, 0.3, rounds)
    truth = decay[:, None] * np.mean([b.mean(axis=0) for b in base], axis=0)
    reports = np.zeros((runs, rounds, 2))
    for run, t in itertools.product(range(runs), range(rounds)):
        chosen = rng.permutation(clients)[:cohort]
        reports[run, t] = decay[t] * np.mean(
            [base[k][rng.permutation(len(base[k]))[:size]].mean(axis=0) for k in chosen], axis=0
        )
    omega = np.sqrt(between_client_variance([b.mean(axis=0) for b in base]))  # largest in the first round
    factors = [report_factor(len(b), size) for b in base]
    tau = np.sqrt(within_client_variance([dispersion(b) for b in base], factors))
    measured = measured_report_error(reports, np.broadcast_to(truth, reports.shape))
    assert 0 < measured <= report_error_bound(omega, tau, clients, cohort, orthogonal=True)
    assert measured <= report_error_bound(omega, tau, clients, cohort)


def test_measured_error_by_hand():
    reports = np.array([[[1.0, 2.0], [0.0, 1.0]], [[1.0, 4.0], [2.0, 1.0]]])
    losses = np.ones((2, 2, 2))
    np.testing.assert_array_equal(report_errors(reports, losses), [[1, 1], [9, 1]])
    assert measured_report_error(reports, losses) == 5
    assert measured_report_error(reports[1], losses[1]) == 9


def test_dispersion_of_equal_values_is_zero():
    assert dispersion(np.full(5, 3.0)) == 0
    np.testing.assert_allclose(dispersion([[1.0, 0.0], [3.0, 0.0]]), [1, 0])


@pytest.mark.parametrize(
    "call",
    [
        lambda: participation_factor(0, 1),
        lambda: participation_factor(5, 6),
        lambda: participation_factor(5, 0),
        lambda: participation_factor(5, 2.5),
        lambda: participation_heterogeneity([-1.0], 5, 2),
        lambda: report_size(0, 1, 1),
        lambda: report_size(5, -1, 1),
        lambda: report_size(5, 1, 0),
        lambda: report_factor(5, 6),
        lambda: dispersion([]),
        lambda: dispersion([1.0, np.nan]),
        lambda: within_client_variance([[1.0], [2.0]], [0.1]),
        lambda: report_error_bound([-1.0], [1.0], 5, 2),
        lambda: report_error_bound([1.0], [1.0, 2.0], 5, 2),
        lambda: report_errors([[1.0]], [[-1.0]]),
        lambda: report_errors([[1.0]], [[1.0], [2.0]]),
        lambda: measured_report_error([1.0], [1.0]),
    ],
)
def test_bad_input_is_named(call):
    with pytest.raises(InputError, match=r"^Parameter `\w+` should .*Found `\w+"):
        call()
