"""The lemmas on one round, against expectations that are sums over every outcome."""

import numpy as np
import pytest

from fedhv.methods.weights import log_hypervolume
from fedhv.support.errors import InputError
from fedhv.theory import (
    StepSizes,
    drift_bias_bound,
    ideal_weights,
    initial_gradient_bound,
    largest_effective_step,
    movement_bound,
    movement_factor,
    one_round_change_bound,
    stale_gradient_bound,
    step_conditions,
    update_second_moment_bound,
    virtual_deviation_bound,
    weight_error_factor,
)

from .cases import Federation

CASES = [(seed, cohort, k) for seed in range(4) for cohort, k in [(1, 1), (1, 4), (2, 2), (3, 1), (3, 2)]]


class Round:
    """One round of a random federation, every outcome enumerated."""

    def __init__(self, seed, cohort, local_steps, share=1.0):
        rng = np.random.default_rng([seed, cohort, local_steps])
        self.federation = fed = Federation.random(seed, noise=[0.0, 0.3, 1.0][seed % 3])
        self.theta = rng.standard_normal(2)
        self.reference = fed.losses(self.theta) * 1.5 + 0.5
        slack = (self.reference - fed.losses(self.theta)).min()
        self.problem = fed.constants(self.reference, self.theta, cohort, margin=slack / 2)
        limits = step_conditions(self.problem, StepSizes(local_steps=1, local_lr=1.0))
        local = share * limits.local_limit / local_steps
        # The server's step meets the second condition, which is far stricter.
        server = limits.effective_limit / (local * local_steps)
        self.steps = StepSizes(local_steps=local_steps, local_lr=local, server_lr=server)
        assert step_conditions(self.problem, self.steps).hold
        self.weights = rng.dirichlet(np.ones(2))
        self.outcomes = list(fed.rounds(self.theta, self.weights, cohort, self.steps))
        self.updates = np.array([paths[:, -1].mean(axis=0) - self.theta for _, paths in self.outcomes])
        self.direction = self.weights @ fed.gradients(self.theta)


@pytest.mark.parametrize(("seed", "cohort", "local_steps"), CASES)
def test_virtual_trajectory_deviation(seed, cohort, local_steps):
    r = Round(seed, cohort, local_steps)
    virtual = r.federation.virtual_path(r.theta, r.weights, r.steps)
    for s in range(local_steps + 1):
        deviation = np.mean([((paths[:, s] - virtual[s]) ** 2).sum(axis=-1).mean() for _, paths in r.outcomes])
        assert deviation <= virtual_deviation_bound(r.problem, r.steps, s) + 1e-15


@pytest.mark.parametrize(("seed", "cohort", "local_steps"), CASES)
def test_drift_bias(seed, cohort, local_steps):
    r = Round(seed, cohort, local_steps)
    bias = np.linalg.norm(r.updates.mean(axis=0) + r.steps.local * r.direction)
    assert bias <= drift_bias_bound(r.problem, r.steps) + 1e-14
    if local_steps == 1:
        assert drift_bias_bound(r.problem, r.steps) == 0


@pytest.mark.parametrize(("seed", "cohort", "local_steps"), CASES)
def test_update_second_moment(seed, cohort, local_steps):
    """The noises are independent between clients, so that the refined bound holds too."""
    r = Round(seed, cohort, local_steps)
    square = (r.updates**2).sum(axis=1).mean()
    norm = np.linalg.norm(r.direction)
    plain = update_second_moment_bound(r.problem, r.steps, norm)
    refined = update_second_moment_bound(r.problem, r.steps, norm, orthogonal_gradients=True)
    assert square <= refined <= plain
    moved = r.steps.server_lr**2 * square
    assert moved <= movement_bound(r.problem, r.steps, orthogonal_gradients=True) <= movement_bound(r.problem, r.steps)


@pytest.mark.parametrize(("seed", "cohort", "local_steps"), CASES)
@pytest.mark.parametrize("exact", [True, False])
def test_one_round_descent(seed, cohort, local_steps, exact):
    """E Φ(θ⁺) − Φ(θ), with the ideal weights and with arbitrary ones."""
    r = Round(seed, cohort, local_steps)
    fed, reference = r.federation, r.reference
    ideal = ideal_weights(fed.losses(r.theta), reference)
    if exact:
        r.weights = ideal
        r.outcomes = list(fed.rounds(r.theta, ideal, cohort, r.steps))
        r.updates = np.array([paths[:, -1].mean(axis=0) - r.theta for _, paths in r.outcomes])
    error = np.linalg.norm((r.weights - ideal) @ fed.gradients(r.theta))
    values = [log_hypervolume(fed.losses(r.theta + r.steps.server_lr * u), reference) for u in r.updates]
    change = np.mean(values) - log_hypervolume(fed.losses(r.theta), reference)
    gradient = np.linalg.norm(fed.hypervolume_gradient(r.theta, reference))
    bound = one_round_change_bound(r.problem, r.steps, gradient**2, error**2, orthogonal_gradients=True)
    assert change <= bound + 1e-12
    assert bound <= one_round_change_bound(r.problem, r.steps, gradient**2, error**2)


def test_stale_gradient_error():
    """‖Σ (w − w*)∇f‖ ≤ G_max‖w − w*‖₁ ≤ 2G_max, and the squared form by its formula."""
    r = Round(1, 2, 2)
    gradients = r.federation.gradients(r.theta)
    for w, v in np.random.default_rng(0).dirichlet(np.ones(2), (50, 2)):
        assert np.linalg.norm((w - v) @ gradients) ** 2 <= initial_gradient_bound(r.problem)
    p, g, c = r.problem, r.problem.largest_gradient, 2 / r.problem.rho_clip
    expected = 2 * g**2 * c**2 * 0.3 + 2 * g**4 * c**2 * r.steps.effective**2 * movement_factor(p, r.steps)
    assert stale_gradient_bound(p, r.steps, 0.3) == pytest.approx(expected)
    assert stale_gradient_bound(p, r.steps, 0.3, attained_lipschitz=True) == pytest.approx(expected / 4)
    assert initial_gradient_bound(p) == pytest.approx(4 * g**2)


def test_formulas_by_hand():
    r = Round(1, 2, 2)
    p, steps = r.problem, StepSizes(local_steps=3, local_lr=0.01, server_lr=2.0)
    g, lw, bar = p.largest_gradient, p.total_smoothness, p.drift_gradient
    eta, k = 0.01, 3
    drift = lw**2 * bar / 2 * eta**2 * 2 * 5
    h = p.participation_heterogeneity
    assert movement_factor(p, steps) == pytest.approx(6 * g**2 + p.noise + 6 * h + drift)
    assert movement_factor(p, steps, orthogonal_gradients=True) == pytest.approx(6 * g**2 + p.noise / 2 + 6 * h + drift)
    assert movement_bound(p, steps) == pytest.approx(0.06**2 * movement_factor(p, steps))
    assert virtual_deviation_bound(p, steps, 2) == pytest.approx(4 * eta**2 * 4 * (p.dissimilarity + p.noise))
    assert drift_bias_bound(p, steps) == pytest.approx(lw * eta**2 * np.sqrt(bar) / 2 * 6)
    assert update_second_moment_bound(p, steps, 1.5) == pytest.approx(
        6 * eta**2 * k**2 * 1.5**2 + 3 * eta**2 * k * p.noise + 6 * eta**2 * k**2 * h + drift * eta**2 * k**2
    )
    limit = p.scale_min**2 / (48 * p.scale_max * p.hypervolume_smoothness)
    assert largest_effective_step(p) == pytest.approx(limit)
    assert weight_error_factor(p) == pytest.approx(p.scale_max + 6 * p.hypervolume_smoothness * limit)


@pytest.mark.parametrize(
    "call",
    [
        lambda p, s: virtual_deviation_bound(p, s, 5),
        lambda p, s: virtual_deviation_bound(p, s, -1),
        lambda p, s: update_second_moment_bound(p, s, -1.0),
        lambda p, s: stale_gradient_bound(p, s, -1.0),
        lambda p, s: one_round_change_bound(p, s, -1.0, 0.0),
        lambda p, s: one_round_change_bound(p, s, 0.0, float("nan")),
    ],
)
def test_bad_input_is_named(call):
    r = Round(0, 1, 1)
    with pytest.raises(InputError, match=r"^Parameter `\w+` should "):
        call(r.problem, r.steps)
