"""The convergence theorem: its constants, its seven terms, its schedule, and the theorem itself where it is a sum."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhv.methods.weights import inverse_slack_weights
from fedhv.support.errors import InputError
from fedhv.theory import (
    ProblemConstants,
    StepSizes,
    explicit_constants,
    initial_gradient_bound,
    largest_base_step,
    largest_effective_step,
    movement_factor,
    one_round_change_bound,
    prescribed_steps,
    single_objective_stationarity_bound,
    stale_gradient_bound,
    stationarity_bound,
    step_conditions,
)

from .cases import Federation, deterministic, powers, problems

SMALL = ProblemConstants(
    smoothness=[1.0, 1.0],
    reference=[2.0, 2.0],
    initial_losses=[1.0, 0.5],
    clients=5,
    cohort=2,
    gradient_noise=[0.5, 0.5],
    heterogeneity=[0.5, 0.0],
    loss_spread=[0.2, 0.0],
    report_noise=[0.0, 0.4],
    margin=1.0,
    floor=0.5,
)


def test_constants_by_hand():
    """c_max = 2, c_min = 1, G² = 4, L_Φ = 10, η̄ = 1/960, E_wt = 2 + 1/16, C = 4, Ḡ² = 2(4 + 3), L_w = 2."""
    a = explicit_constants(SMALL)
    assert dataclasses.astuple(a) == pytest.approx((8, 120, 240, 112 * (2 + 1 / 96), 2112, 8448, 264))
    refined = explicit_constants(SMALL, attained_lipschitz=True)
    assert dataclasses.astuple(refined) == pytest.approx((8, 120, 240, 112 * (2 + 1 / 96), 528, 2112, 264))


def test_terms_by_hand():
    steps = StepSizes(local_steps=2, local_lr=1 / 4000, server_lr=2.0)  # η_eff = 1/1000
    terms = stationarity_bound(SMALL, steps, 50)
    chi = 3 / 8
    drift = 3 / 4000**2
    gap = 2 * math.log(2) - math.log(1.5)
    movement = 24 + 0.75 + 6 * chi * 0.25 + 28 * drift
    assert terms.initial_gap == pytest.approx(8 * gap * 1000 / 50)
    assert terms.gradient_noise == pytest.approx(120 * 0.001 * 0.5)
    assert terms.participation == pytest.approx(240 * 0.001 * chi * 0.25)
    assert terms.local_drift == pytest.approx(112 * (2 + 1 / 96) * drift)
    assert terms.report_error == pytest.approx(2112 * (chi * 0.04 + 0.16))
    assert terms.staleness == pytest.approx(8448 * 1e-6 * movement)
    assert terms.initial_weights == pytest.approx(264 / 50)
    assert terms.total == pytest.approx(sum(terms.as_dict().values()))
    assert list(terms.as_dict()) == [
        "initial_gap",
        "gradient_noise",
        "participation",
        "local_drift",
        "report_error",
        "staleness",
        "initial_weights",
    ]


def test_refinements_divide_the_noise_by_the_cohort():
    steps = StepSizes(local_steps=2, local_lr=1 / 4000, server_lr=2.0)
    plain = stationarity_bound(SMALL, steps, 50)
    gradients = stationarity_bound(SMALL, steps, 50, orthogonal_gradients=True)
    assert gradients.gradient_noise == pytest.approx(plain.gradient_noise / 2)
    assert plain.staleness - gradients.staleness == pytest.approx(8448 * 1e-6 * 0.75 / 2)
    reports = stationarity_bound(SMALL, steps, 50, orthogonal_reports=True)
    assert plain.report_error - reports.report_error == pytest.approx(2112 * 0.16 / 2)
    untouched = ("initial_gap", "participation", "local_drift", "initial_weights")
    for name in untouched:
        assert getattr(gradients, name) == getattr(reports, name) == getattr(plain, name)
    known = stationarity_bound(SMALL, steps, 50, report_error=0.01)
    assert known.report_error == pytest.approx(21.12)


@given(problem=problems(), k=st.integers(1, 20), horizon=st.integers(1, 10**4), server=powers(-1, 1))
@deterministic
def test_theorem_follows_from_the_one_round_bound(problem, k, horizon, server):
    """Telescoping the one-round lemma gives at most the theorem's bound, and exactly it for one local step."""
    steps = prescribed_steps(problem, horizon, local_steps=k, server_lr=server)
    xi = problem.report_error_bound()
    terms = stationarity_bound(problem, steps, horizon)
    change = one_round_change_bound(problem, steps, 0.0, stale_gradient_bound(problem, steps, xi))
    first = one_round_change_bound(problem, steps, 0.0, initial_gradient_bound(problem)) - one_round_change_bound(
        problem, steps, 0.0, 0.0
    )
    descent = steps.effective / (4 * problem.scale_max)
    telescoped = (problem.initial_gap / horizon + change + first / horizon) / descent
    assert telescoped <= terms.total * (1 + 1e-9)
    if k == 1:
        assert telescoped == pytest.approx(terms.total, rel=1e-9)


@given(problem=problems(), k=st.integers(1, 20), horizon=st.integers(1, 10**6), server=powers(-2, 2))
@deterministic
def test_prescribed_steps_are_admissible_and_give_the_corollary(problem, k, horizon, server):
    steps = prescribed_steps(problem, horizon, local_steps=k, server_lr=server)
    assert step_conditions(problem, steps).hold
    eta0 = largest_base_step(problem, server)
    assert steps.effective == pytest.approx(eta0 / math.sqrt(horizon))
    a, terms = explicit_constants(problem), stationarity_bound(problem, steps, horizon)
    drift = eta0**2 * (k - 1) * (2 * k - 1) / (server**2 * k**2 * horizon)
    movement = (
        6 * problem.largest_gradient**2
        + 3 * problem.noise / k
        + 6 * problem.participation_heterogeneity
        + problem.total_smoothness**2 * problem.drift_gradient / 2 * drift
    )
    root = math.sqrt(horizon)
    expected = (
        a.a1 * problem.initial_gap / (eta0 * root),
        a.a2 * eta0 * problem.noise / root,
        a.a3 * eta0 * problem.participation_heterogeneity / root,
        a.a4 * drift,
        a.a5 * problem.report_error_bound(),
        a.a6 * eta0**2 / horizon * movement,
        a.a7 / horizon,
    )
    assert dataclasses.astuple(terms) == pytest.approx(expected, rel=1e-9)


@given(problem=problems(), horizon=st.integers(1, 1000))
@deterministic
def test_full_participation_one_step_and_exact_reports_empty_their_terms(problem, horizon):
    whole = problem.replace(cohort=problem.clients)
    steps = prescribed_steps(whole, horizon, local_steps=1)
    terms = stationarity_bound(whole, steps, horizon)
    assert terms.participation == 0
    assert terms.local_drift == 0
    exact = whole.replace(report_noise=[0.0] * problem.tasks)
    assert stationarity_bound(exact, steps, horizon).report_error == 0
    assert terms.initial_gap > 0 or not any(problem.initial_losses)
    # More clients never loosen the bound.
    few = stationarity_bound(problem, steps, horizon)
    assert terms.total <= few.total * (1 + 1e-12)


@given(problem=problems())
@deterministic
def test_without_report_error_the_bound_falls_like_the_root_of_the_horizon(problem):
    """Local log-log slope at least as steep as −1/2; with report error the bound levels off at it."""
    exact = problem.replace(loss_spread=[0.0] * problem.tasks, report_noise=[0.0] * problem.tasks)
    totals = [
        stationarity_bound(exact, prescribed_steps(exact, t, local_steps=3), t).total for t in (100, 10**4, 10**12)
    ]
    assert totals[1] <= totals[0] / 10 * (1 + 1e-9)
    assert totals[2] <= totals[1] / 10**4 * (1 + 1e-9)
    far = 10**300
    terms = stationarity_bound(problem, prescribed_steps(problem, far, local_steps=3), far)
    assert terms.total == pytest.approx(
        explicit_constants(problem).a5 * problem.report_error_bound(), rel=1e-6, abs=1e-100
    )


@given(problem=problems(), share=st.floats(0.5, 2))
@deterministic
def test_step_conditions_are_the_two_inequalities(problem, share):
    steps = StepSizes(local_steps=4, local_lr=share / (16 * problem.total_smoothness), server_lr=1.0)
    limit = problem.scale_min**2 / (48 * problem.scale_max * problem.hypervolume_smoothness)
    conditions = step_conditions(problem, steps)
    assert conditions.local_limit == pytest.approx(1 / (4 * problem.total_smoothness))
    assert conditions.effective_limit == pytest.approx(limit)
    expected = (share > 1 + 1e-9) + (steps.effective > limit * (1 + 1e-9))
    assert len(conditions.violations) == expected
    assert conditions.hold == (expected == 0)


def test_steps_that_are_too_large_are_refused_by_name():
    with pytest.raises(InputError, match=r"^Parameter `steps` should .*η_ℓ K = 1 exceeds.*η_eff = 1 exceeds"):
        stationarity_bound(SMALL, StepSizes(local_steps=10, local_lr=0.1), 10)
    formula = stationarity_bound(SMALL, StepSizes(local_steps=10, local_lr=0.1), 10, check_steps=False)
    assert formula.gradient_noise == pytest.approx(120 * 0.5)


def test_single_objective():
    one = SMALL.replace(
        smoothness=[1.0],
        reference=[2.0],
        initial_losses=[0.5],
        gradient_noise=[1.0],
        heterogeneity=[1.0],
        loss_spread=[1.0],
        report_noise=[1.0],
    )
    steps = prescribed_steps(one, 10, local_steps=2)
    general, special = stationarity_bound(one, steps, 10), single_objective_stationarity_bound(one, steps, 10)
    assert (special.report_error, special.staleness, special.initial_weights) == (0, 0, 0)
    for name in ("initial_gap", "gradient_noise", "participation", "local_drift"):
        assert getattr(special, name) == getattr(general, name) > 0
    with pytest.raises(InputError, match=r"^Parameter `problem` should have one task"):
        single_objective_stationarity_bound(SMALL, prescribed_steps(SMALL, 10, local_steps=2), 10)


@pytest.mark.parametrize(("seed", "cohort", "local_steps"), [(0, 1, 1), (1, 2, 2), (2, 2, 5), (3, 3, 3), (4, 3, 1)])
def test_theorem_over_every_sequence_of_cohorts(seed, cohort, local_steps):
    """Four rounds of the algorithm with exact gradients and full reports: the expectation is a sum over all cohorts."""
    rounds = 4
    fed = Federation.random(seed, noise=0.0)
    start = np.random.default_rng(seed).standard_normal(2)
    reference = fed.losses(start) * 1.3 + 0.2
    margin = (reference - fed.losses(start)).min() / 2
    problem = fed.constants(reference, start, cohort, margin=margin)
    steps = prescribed_steps(problem, rounds, local_steps=local_steps, server_lr=0.05)
    squares, errors, spreads = np.zeros(rounds), np.zeros(rounds), np.zeros((rounds, 2))
    sequences = list(itertools.product(itertools.combinations(range(3), cohort), repeat=rounds))
    for cohorts in sequences:
        theta, weights = start, np.full(2, 0.5)
        for t, chosen in enumerate(cohorts):
            losses = fed.losses(theta)
            assert (reference - losses).min() >= margin
            squares[t] += (fed.hypervolume_gradient(theta, reference) ** 2).sum()
            report = fed.client_losses(theta)[list(chosen)].mean(axis=0)
            errors[t] += np.abs(report - losses).max() ** 2
            spreads[t] += ((fed.client_losses(theta) - losses) ** 2).mean(axis=0)
            ends = [fed.local_paths(theta, weights, k, np.ones(local_steps), steps.local_lr)[-1] for k in chosen]
            theta = theta + steps.server_lr * (np.mean(ends, axis=0) - theta)
            weights = inverse_slack_weights(report, reference, problem.rho_clip)
    n = len(sequences)
    measured, xi = squares.mean() / n, (errors / n).max()
    problem = problem.replace(loss_spread=np.sqrt((spreads / n).max(axis=0)))
    assert xi <= problem.report_error_bound() * (1 + 1e-9) + 1e-15
    assert 0 < measured <= stationarity_bound(problem, steps, rounds, report_error=xi).total
    assert measured <= stationarity_bound(problem, steps, rounds).total


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda s: stationarity_bound(SMALL, s, 0), "horizon"),
        (lambda s: stationarity_bound(SMALL, s, 10, report_error=-1.0), "report_error"),
        (lambda s: stationarity_bound(SMALL.replace(margin=None), s, 10), "margin"),
        (lambda s: prescribed_steps(SMALL, 0, local_steps=1), "horizon"),
        (lambda s: prescribed_steps(SMALL, 10, local_steps=0), "local_steps"),
        (lambda s: prescribed_steps(SMALL, 10, local_steps=1, server_lr=0.0), "server_lr"),
        (lambda s: prescribed_steps(SMALL, 10, local_steps=1, base_step=1.0), "base_step"),
    ],
)
def test_bad_input_is_named(call, name):
    with pytest.raises(InputError, match=rf"^Parameter `{name}` should "):
        call(prescribed_steps(SMALL, 10, local_steps=1))


def test_a_smaller_base_step_may_be_chosen():
    steps = prescribed_steps(SMALL, 100, local_steps=4, server_lr=2.0, base_step=1e-4)
    assert steps.effective == pytest.approx(1e-5)
    assert largest_base_step(SMALL, 1e-6) == pytest.approx(1e-6 / 8)
    assert largest_base_step(SMALL, 1.0) == largest_effective_step(SMALL)
    assert movement_factor(SMALL, steps) > 0
