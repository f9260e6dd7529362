"""The reference-safety certificate."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedhv.methods.weights import inverse_slack_weights, log_hypervolume
from fedhv.support.errors import InputError
from fedhv.theory import (
    ProblemConstants,
    StepSizes,
    azuma_bound,
    certify,
    largest_horizon,
    largest_increment,
    largest_margin,
    mean_drift,
    round_buffer,
    round_excursion,
    smallest_margin,
    smoothness_constant,
)

from .cases import Federation, deterministic, powers, problems

SMALL = ProblemConstants(
    smoothness=[1.0, 2.0],
    reference=[2.0, 1.0],
    initial_losses=[0.5, 0.25],
    clients=4,
    cohort=2,
    gradient_bound=3.0,
)
STEPS = StepSizes(local_steps=2, local_lr=1e-4, server_lr=1.5)


@st.composite
def settings_to_certify(draw):
    """Problems with losses well inside the reference and small steps: some can be certified, some cannot."""
    problem = draw(problems(margin=None, floor=None))
    problem = problem.replace(gradient_bound=problem.largest_gradient * draw(st.floats(1, 5)))
    unit = float(min(problem.reference)) / problem.largest_gradient**2
    steps = StepSizes(
        local_steps=draw(st.integers(1, 5)),
        local_lr=unit * draw(powers(-6, -1)),
        server_lr=draw(st.floats(0.2, 3)),
    )
    return problem, steps, draw(st.floats(1e-6, 0.5))


def test_terms_by_hand():
    """m = 2, G² = (4, 4), L_w = 3, L_max = 2, η_ℓK = 2e-4, η_eff = 3e-4, R_r = 2."""
    rho, horizon, delta = 0.25, 10, 0.1
    c = certify(SMALL, STEPS, horizon, delta, rho)
    move = 2e-4 * 3 * 1.5
    assert round_excursion(SMALL, STEPS) == c.excursion == pytest.approx(move)
    assert round_buffer(SMALL, STEPS) == c.buffer == pytest.approx(2 * move + move**2)
    assert smallest_margin(SMALL, STEPS) == pytest.approx(4 * move + 2 * move**2)
    rough = smoothness_constant([1.0, 2.0], [2.0, 1.0], rho / 2)
    assert rough == pytest.approx(3 / 0.125 + 8 / 0.125**2)
    mu = 2 * 2 / rho * (3e-4 * 2 + 0.5 * 1.5 * 4e-8 * 3 * 3) + 0.5 * rough * 9e-8 * 9
    d = 2 * 2 * 2 / rho * 3e-4 * 3 + 0.5 * rough * 9e-8 * 9
    assert mean_drift(SMALL, STEPS, rho) == c.drift == pytest.approx(mu)
    assert largest_increment(SMALL, STEPS, rho) == c.increment == pytest.approx(d)
    assert c.initial_value == pytest.approx(-math.log(1.5) - math.log(0.75))
    assert c.drift_total == pytest.approx(10 * mu)
    assert c.fluctuation == pytest.approx((d + mu) * math.sqrt(20 * math.log(10)))
    assert c.budget == pytest.approx(math.log(1 / (rho * 2)))
    assert c.spent == pytest.approx(c.initial_value + c.drift_total + c.fluctuation)
    assert c.certified
    assert c.certified_margin == rho / 2
    assert str(c) == (
        f"Certified at ρ = 0.25, T = 10, δ = 0.1: buffer {c.buffer:.6g} ≤ ρ/2 = 0.125, "
        f"budget {c.spent:.6g} ≤ {c.budget:.6g}."
    )


def test_a_refusal_names_the_failing_condition_and_its_terms():
    budget = certify(SMALL, STEPS, 10**6, 0.1, 0.25)
    assert not budget.certified
    assert len(budget.reasons) == 1
    assert str(budget).startswith("Not certified at ρ = 0.25, T = 1000000, δ = 0.1, because Φ(θ⁰) + Tμ + ")
    assert f"{budget.spent:.6g} exceeds the budget log(1/(ρR_r)) = {budget.budget:.6g}" in str(budget)
    buffer = certify(SMALL, STEPS, 1, 0.1, 0.003)
    assert "a round can use up slack" in buffer.reasons[0]
    both = certify(SMALL, StepSizes(local_steps=2, local_lr=1.0), 10, 0.1, 0.25)
    assert len(both.reasons) == 2
    assert "; and because " in str(both)


@given(case=settings_to_certify(), horizon=st.integers(1, 10**4))
@deterministic
def test_largest_margin_is_the_largest(case, horizon):
    problem, steps, delta = case
    margin = largest_margin(problem, steps, horizon, delta)
    grid = np.geomspace(1e-4, 1, 40) * min(np.array(problem.reference) - problem.initial_losses)
    if margin is None:
        assert not any(certify(problem, steps, horizon, delta, rho).certified for rho in grid)
        assert not certify(problem, steps, horizon, delta).certified
    else:
        assert certify(problem, steps, horizon, delta, margin).certified
        assert certify(problem, steps, horizon, delta).margin == margin
        for rho in [margin * (1 + 1e-9), *grid[grid > margin * (1 + 1e-9)]]:
            assert not certify(problem, steps, horizon, delta, rho).certified
        assert margin <= min(np.array(problem.reference) - problem.initial_losses)


@given(case=settings_to_certify(), share=st.floats(0.05, 0.95))
@deterministic
def test_largest_horizon_is_the_largest(case, share):
    problem, steps, delta = case
    margin = share * float(min(np.array(problem.reference) - problem.initial_losses))
    best = largest_horizon(problem, steps, delta)
    at_margin = largest_horizon(problem, steps, delta, margin)
    assert at_margin <= best
    for horizon, rho in [(best, None), (at_margin, margin)]:
        if horizon:
            assert certify(problem, steps, horizon, delta, rho).certified
        assert not certify(problem, steps, horizon + 1, delta, rho).certified
    if at_margin:  # the root of the quadratic in √T
        c = certify(problem, steps, 1, delta, margin)
        b = (c.increment + c.drift) * math.sqrt(2 * math.log(1 / delta))
        root = (-b + math.sqrt(b**2 + 4 * c.drift * (c.budget - c.initial_value))) / (2 * c.drift)
        assert at_margin == pytest.approx(root**2, abs=1 + 1e-6 * root**2)


def test_where_nothing_can_be_certified_the_nearest_margin_is_explained():
    steps = StepSizes(local_steps=2, local_lr=0.01)
    assert largest_margin(SMALL, steps, 1000, 0.1) is None
    nearest = certify(SMALL, steps, 1000, 0.1)
    assert not nearest.certified
    assert nearest.buffer <= nearest.margin / 2 * (1 + 1e-12)
    shortfall = nearest.spent - nearest.budget
    for rho in np.geomspace(smallest_margin(SMALL, steps), 10, 50):
        other = certify(SMALL, steps, 1000, 0.1, rho)
        assert other.spent - other.budget >= shortfall * (1 - 1e-9)
    assert largest_horizon(SMALL, StepSizes(local_steps=2, local_lr=1.0), 0.1) == 0


@pytest.mark.parametrize("horizon", [1, 10, 1000])
def test_the_nearest_margin_is_a_stationary_point_where_the_buffer_is_slack(horizon):
    steps = StepSizes(local_steps=2, local_lr=0.02, server_lr=3.0)
    nearest = certify(SMALL, steps, horizon, 0.1)
    assert not nearest.certified
    assert nearest.buffer < nearest.margin / 2 * 0.99
    h = 1e-4
    left = [certify(SMALL, steps, horizon, 0.1, nearest.margin * math.exp(s * h)) for s in (-1, 1)]
    slope = (left[1].spent - left[1].budget - left[0].spent + left[0].budget) / (2 * h)
    assert slope == pytest.approx(0, abs=1e-6)


def test_short_horizons_are_found_exactly():
    """Between no round and many there are steps for which the answer is one, two, three."""
    found = {}
    for lr in np.geomspace(1e-2, 1e-4, 200):
        steps = StepSizes(local_steps=2, local_lr=lr)
        found.setdefault(largest_horizon(SMALL, steps, 0.1), steps)
    assert {0, 1, 2, 3} <= set(found)
    for horizon in (1, 2, 3):
        assert certify(SMALL, found[horizon], horizon, 0.1).certified
        assert not certify(SMALL, found[horizon], horizon + 1, 0.1).certified


def test_smaller_steps_certify_longer_horizons():
    horizons = [largest_horizon(SMALL, StepSizes(local_steps=2, local_lr=lr), 0.1) for lr in (1e-4, 1e-5, 1e-6)]
    assert 0 < horizons[0] < horizons[1] < horizons[2]


@given(seed=st.integers(0, 10**6), share=st.floats(0.01, 1))
@deterministic
def test_a_round_stays_within_its_buffer(seed, share):
    """Wherever the condition holds with equality, the whole ball of radius Δ_max keeps slacks of ρ/2."""
    rng = np.random.default_rng(seed)
    fed = Federation.random(seed, clients=2, tasks=3)
    theta = rng.standard_normal(2)
    losses = fed.losses(theta)
    r = losses + rng.uniform(0.1, 2, 3)
    rho = share * (r - losses).min()
    problem = fed.constants(r, theta, 1)
    problem = problem.replace(gradient_bound=problem.largest_gradient)
    g, lips = problem.largest_gradient, problem.largest_smoothness
    radius = (math.sqrt(g**2 + lips * rho) - g) / lips
    steps = StepSizes(local_steps=1, local_lr=radius / g)
    assert smallest_margin(problem, steps) == pytest.approx(rho)
    angles = rng.uniform(0, 2 * np.pi, 50)
    for x in theta + radius * np.column_stack([np.cos(angles), np.sin(angles)]):
        assert (r - fed.losses(x)).min() >= rho / 2 * (1 - 1e-9)


@pytest.mark.parametrize(("horizon", "increment"), [(1, 1.0), (6, 0.5), (12, 2.0)])
def test_maximal_azuma_inequality(horizon, increment):
    """Against every path of a fair walk, whose maximum's distribution is a sum."""
    paths = np.array(list(itertools.product([-increment, increment], repeat=horizon))).cumsum(axis=1)
    top = np.maximum(paths.max(axis=1), 0)
    for level in np.linspace(0, horizon * increment, 25):
        assert (top >= level).mean() <= azuma_bound(level, increment, horizon) + 1e-12
    assert azuma_bound(0, increment, horizon) == 1
    assert azuma_bound(3.0, 1.0, 2) == pytest.approx(math.exp(-9 / 4))


def bounded_federation(seed):
    """A federation with bounded noise and a bound on its stochastic gradients wherever the losses are below r."""
    fed = Federation.random(seed, clients=4, noise=0.2, spread=0.2)
    theta = np.random.default_rng(seed).standard_normal(2)
    r = 4 * fed.losses(theta) + 0.5
    away = np.linalg.norm(fed.centres - fed.centres.mean(axis=0), axis=-1).max(axis=0)
    reach = fed.smoothness * (np.sqrt(2 * r / fed.smoothness) + away)
    bound = reach.max() + np.linalg.norm(fed.noise, axis=1).max()
    return fed, theta, r, fed.constants(r, theta, 2, gradient_bound=bound)


@pytest.mark.parametrize("seed", range(3))
def test_drift_and_increment_bound_every_round(seed):
    """E ΔΦ ≤ μ and |ΔΦ| ≤ D over every outcome of a round, from any weights."""
    fed, theta, r, problem = bounded_federation(seed)
    rho = float((r - fed.losses(theta)).min())
    steps = StepSizes(local_steps=2, local_lr=1e-3, server_lr=1.2)
    assert smallest_margin(problem, steps) <= rho
    start = log_hypervolume(fed.losses(theta), r)
    for weights in ([1.0, 0.0], [0.0, 1.0], [0.5, 0.5]):
        changes = []
        for _, paths in fed.rounds(theta, np.array(weights), 2, steps):
            assert min((r - fed.losses(x)).min() for x in paths.reshape(-1, 2)) >= rho / 2
            end = theta + steps.server_lr * (paths[:, -1].mean(axis=0) - theta)
            changes.append(log_hypervolume(fed.losses(end), r) - start)
        assert np.mean(changes) <= mean_drift(problem, steps, rho)
        assert np.abs(changes).max() <= largest_increment(problem, steps, rho)


def test_a_certified_reference_is_never_violated():
    for seed in range(3):
        fed, start, r, problem = bounded_federation(seed)
        steps = StepSizes(local_steps=2, local_lr=1e-5, server_lr=1.0)
        horizon = min(largest_horizon(problem, steps, 0.05), 40)
        assert horizon >= 3
        certificate = certify(problem, steps, horizon, 0.05)
        assert certificate.certified
        rng = np.random.default_rng(seed)
        for _ in range(30):
            theta, weights = start, np.full(2, 0.5)
            for _ in range(horizon):
                chosen = rng.permutation(4)[:2]
                report = fed.client_losses(theta)[chosen].mean(axis=0)
                signs = rng.choice([-1.0, 1.0], (2, 2))
                paths = [fed.local_paths(theta, weights, k, s, 1e-5) for k, s in zip(chosen, signs, strict=True)]
                assert min((r - fed.losses(x)).min() for path in paths for x in path) >= certificate.certified_margin
                theta = np.mean([path[-1] for path in paths], axis=0)
                assert (r - fed.losses(theta)).min() >= certificate.margin
                weights = inverse_slack_weights(report, r, 1e-6)


@given(case=settings_to_certify(), shares=st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)))
@deterministic
def test_drift_and_increment_fall_with_the_margin(case, shares):
    problem, steps, _ = case
    low, high = sorted(shares)
    assume(high / low > 1 + 1e-6)
    assert mean_drift(problem, steps, low) > mean_drift(problem, steps, high)
    assert largest_increment(problem, steps, low) > largest_increment(problem, steps, high)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: certify(SMALL, STEPS, 0, 0.1, 0.1), "horizon"),
        (lambda: certify(SMALL, STEPS, 10, 0.0, 0.1), "delta"),
        (lambda: certify(SMALL, STEPS, 10, 1.0, 0.1), "delta"),
        (lambda: certify(SMALL, STEPS, 10, 0.1, -0.1), "margin"),
        (lambda: certify(SMALL.replace(gradient_bound=None), STEPS, 10, 0.1, 0.1), "gradient_bound"),
        (lambda: SMALL.replace(gradient_bound=1.0), "gradient_bound"),
        (lambda: SMALL.replace(initial_losses=[2.5, 0.1]), "reference"),
        (lambda: largest_horizon(SMALL, STEPS, 2.0), "delta"),
        (lambda: largest_margin(SMALL, STEPS, -1, 0.1), "horizon"),
        (lambda: mean_drift(SMALL, STEPS, 0.0), "margin"),
        (lambda: azuma_bound(-1.0, 1.0, 5), "level"),
        (lambda: azuma_bound(1.0, 0.0, 5), "increment"),
    ],
)
def test_bad_input_is_named(call, name):
    with pytest.raises(InputError, match=rf"^Parameter `{name}` should "):
        call()
