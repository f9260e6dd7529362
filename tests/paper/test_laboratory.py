"""Federations whose constants are known: exact where they say so, and the same through every engine."""

import itertools

import numpy as np
import pytest
import torch

from fedhv import InputError
from fedhv.engines import Sequential, Stacked
from fedhv.paper.laboratory import Ensemble, EnsembleDraws, Logistic, Quadratics, observe_ensemble
from fedhv.problem.random import Purpose
from fedhv.protocol.client import Client
from fedhv.protocol.cohort import LocalTraining, minibatches, report_positions, sample_cohort
from fedhv.simulation.rounds import Plan, simulate
from fedhv.theory import ProblemConstants, StepSizes, largest_base_step
from fedhv.theory.diagnosis import Examiner
from fedhv.theory.reports import report_factor


def hull_points(q, rng, count):
    """Random models of the hull, towards its corners as well as its middle."""
    weights = rng.dirichlet(np.full(len(q.vertices), 0.05), count)
    return weights @ q.vertices


def local(steps, batch_size):
    return LocalTraining(steps.local_steps, batch_size, steps.local_lr, sampling="replacement")


# --- the closed form is the algorithm -----------------------------------------------------------------------


@pytest.mark.parametrize("engine", [Sequential, Stacked])
@pytest.mark.parametrize(
    ("cohort", "report", "server_lr"), [(5, "all", 1.0), (2, "all", 0.7), (5, 1, 1.0), (2, 1, 0.4)]
)
def test_given_an_engines_draws_the_ensemble_gives_its_models(engine, cohort, report, server_lr):
    q = Quadratics.random(1, clients=5, examples=4, tasks=3, offset=0.3)
    constants = q.constants(cohort=cohort, batch_size=2, report=report, margin=1.0, floor=0.2)
    steps, seed, rounds = StepSizes(local_steps=3, local_lr=0.2, server_lr=server_lr), 7, 12
    plan = Plan(rounds, cohort, local(steps, 2), evaluate_every=0, seed=seed)
    clients, batches, reports = [], [], []
    for t in range(rounds):
        who = sample_cohort(seed, t, 5, cohort, plan.local)
        clients.append(who.clients)
        batches.append([minibatches(who.stream(Purpose.MINIBATCHES, k), 4, plan.local) for k in who.clients])
        reports.append([report_positions(who.stream(Purpose.REPORT, k), 4, plan.local, report) for k in who.clients])
    draws = EnsembleDraws(
        np.array(clients)[:, None],
        np.array(batches)[:, None],
        None if report == "all" else np.array(reports)[:, None],
    )
    moments = list(Ensemble(q, constants, 2, report).simulate(steps, rounds, draws=draws))
    finished = list(simulate(engine(q.problem()), q.method(constants, steps, report), plan))
    for t, round_ in enumerate(finished):
        np.testing.assert_allclose(moments[t].reports[0], round_.state.record["report"], atol=2e-6)
        np.testing.assert_allclose(moments[t + 1].models[0], round_.state.model.numpy(), atol=2e-6)
        np.testing.assert_allclose(moments[t + 1].weights[0], round_.state.weights.numpy(), atol=2e-6)


def test_the_ensembles_random_draws_are_uniform():
    q = Quadratics.random(2, clients=4, examples=3)
    ensemble = Ensemble(q, q.constants(cohort=2, batch_size=2, report=1, margin=1.0), 2, 1)
    draws = ensemble._draw(400, 50, 2, 2, np.random.default_rng(0))
    assert draws.clients.shape == (400, 50, 2)
    assert (draws.clients[..., 0] != draws.clients[..., 1]).all()
    assert (draws.reports[..., 0] != draws.reports[..., 1]).all()
    for values, share in ((draws.clients, 1 / 4), (draws.batches, 1 / 3), (draws.reports, 1 / 3)):
        counts = np.bincount(values.ravel()) / values.size
        np.testing.assert_allclose(counts, share, atol=0.01)


def test_runs_of_several_horizons_are_what_each_is_alone():
    q = Quadratics.random(3, examples=1)
    ensemble = Ensemble(q, q.constants(cohort=8, batch_size=1, margin=1.0))
    steps = [StepSizes(local_steps=2, local_lr=lr) for lr in (0.1, 0.2)]
    together = list(ensemble.simulate(steps, [9, 4]))
    alone = list(ensemble.simulate(steps[1], 4))
    for both, one in zip(together, alone, strict=False):
        np.testing.assert_array_equal(both.models[1], one.models[0])
    assert [len(moment.models) for moment in together] == [2] * 5 + [1] * 5


# --- quadratics: every constant exact -----------------------------------------------------------------------


def test_losses_and_gradients_are_those_of_the_problem_that_engines_see():
    q = Quadratics.random(4, tasks=3, offset=0.5)
    look = Examiner(Client(q.problem()))
    theta = q.start + 0.3
    population = look.population(torch.from_numpy(theta).float())
    np.testing.assert_allclose(population.client_losses, q.client_losses(theta), rtol=1e-5)
    np.testing.assert_allclose(population.losses, q.losses(theta), rtol=1e-5)
    gradients = look.task_gradients(torch.from_numpy(theta).float())
    np.testing.assert_allclose(gradients, q.gradients(theta), atol=1e-5)
    each = q.example_losses(theta)
    np.testing.assert_allclose(population.dispersions, each.var(axis=1), rtol=1e-4)


def test_smoothness_noise_and_heterogeneity_are_equalities():
    q = Quadratics.random(5, clients=3, examples=3, tasks=2)
    c = q.constants(cohort=2, batch_size=2, margin=1.0)
    theta, other = q.start, q.start + np.array([1.0, -2.0, 0.5])
    change = np.linalg.norm(q.gradients(theta) - q.gradients(other), axis=1) / np.linalg.norm(theta - other)
    np.testing.assert_allclose(change, c.smoothness)
    # The variance of a minibatch gradient, over all 3² minibatches of two.
    example_gradients = q.smoothness[:, None] * (theta - q.points)
    batches = np.array(
        [example_gradients[:, list(pair)].mean(axis=1) for pair in itertools.product(range(3), repeat=2)]
    )
    exact = example_gradients.mean(axis=1)
    variance = ((batches - exact) ** 2).sum(axis=-1).mean(axis=0)
    np.testing.assert_allclose(variance.max(axis=0), np.square(c.gradient_noise))
    apart = ((exact - exact.mean(axis=0)) ** 2).sum(axis=-1).mean(axis=0)
    np.testing.assert_allclose(apart, np.square(c.heterogeneity))


def test_suprema_hold_on_the_hull_and_are_attained_at_its_vertices():
    q = Quadratics.random(6, clients=4, examples=3, offset=0.4)
    c = q.constants(cohort=2, batch_size=1, report=2, margin=0.5)
    gamma = report_factor(3, 2)

    def at(models):
        each = q.example_losses(models)
        client = each.mean(axis=2)
        noise = gamma * each.var(axis=2).mean(axis=1)
        farthest = np.linalg.norm(models[:, None, None, None] - q.points, axis=-1) * q.smoothness
        return q.losses(models), client.var(axis=1), noise, farthest.reshape(len(models), -1).max(axis=1)

    limits = (np.array(c.reference) - 0.5, np.square(c.loss_spread), np.square(c.report_noise))
    for inside, limit in zip(at(hull_points(q, np.random.default_rng(0), 300)), limits, strict=False):
        assert (inside <= limit * (1 + 1e-12)).all()
    corners = at(q.vertices)
    for value, limit in zip(corners, limits, strict=False):
        np.testing.assert_allclose(value.max(axis=0), limit)
    assert c.gradient_bound == pytest.approx(max(corners[3].max(), c.largest_gradient))


@pytest.mark.parametrize("seed", range(5))
def test_no_run_leaves_the_hull_so_every_slack_keeps_its_margin(seed):
    q = Quadratics.random(seed, clients=4, examples=3, noise=0.5, spread=0.5, offset=0.5)
    c = q.constants(cohort=1, batch_size=1, report=1, margin=0.1)
    wild = StepSizes(local_steps=3, local_lr=1 / q.smoothness.max(), server_lr=1.0)
    seen = observe_ensemble(Ensemble(q, c, 1, 1), wild, 60, runs=50, seed=seed)
    assert seen.smallest_slack.min() >= 0.1 * (1 - 1e-9)
    assert seen.smallest_slack.min() < 2.0  # it was wild


def test_the_squared_gradient_is_that_of_the_log_hypervolume():
    q = Quadratics.random(7, tasks=3)
    r = q.reference(0.4)
    theta, h = q.start, 1e-6

    def phi(x):
        return -np.log(r - q.losses(x)).sum()

    slope = [(phi(theta + h * e) - phi(theta - h * e)) / (2 * h) for e in np.eye(q.dimensions)]
    assert q.squared_gradient(theta, r) == pytest.approx(np.square(slope).sum(), rel=1e-6)


# --- logistic regression: exact smoothness, provable bounds ---------------------------------------------------


def test_logistic_losses_and_gradients_are_those_that_engines_see():
    g = Logistic.random(1, tasks=3)
    theta = np.array([0.4, -0.2, 0.7])
    look = Examiner(Client(g.problem()))
    at = torch.from_numpy(theta).float()
    np.testing.assert_allclose(look.population(at).losses, g.losses(theta), rtol=1e-5)
    np.testing.assert_allclose(look.task_gradients(at), g.gradients(theta), atol=1e-6)


def test_logistic_smoothness_is_attained_at_zero():
    g = Logistic.random(2)
    hessians = np.einsum("kjd,kje->kde", g.inputs, g.inputs) / (4 * g.examples)
    assert g.smoothness == pytest.approx(max(np.linalg.norm(h, 2) for h in hessians))


@pytest.mark.parametrize("radius", [0.1, 1.0, 4.0])
def test_logistic_constants_bound_what_they_should_on_the_ball(radius):
    g = Logistic.random(3, clients=5, examples=4, tasks=2)
    c = g.constants(cohort=2, batch_size=2, radius=radius, margin=0.3, report=1)
    gamma, rng = report_factor(4, 2), np.random.default_rng(0)
    for _ in range(200):
        theta = rng.standard_normal(3)
        theta *= radius / np.linalg.norm(theta) * rng.choice([1.0, rng.random()])
        values, gradients = g.example_losses(theta), g.example_gradients(theta)
        noise = ((gradients - gradients.mean(axis=1, keepdims=True)) ** 2).sum(axis=-1).mean(axis=1) / 2
        client = gradients.mean(axis=1)
        apart = ((client - client.mean(axis=0)) ** 2).sum(axis=-1).mean(axis=0)
        assert (noise.max(axis=0) <= np.square(c.gradient_noise)).all()
        assert (apart <= np.square(c.heterogeneity)).all()
        assert (values.mean(axis=1).var(axis=0) <= np.square(c.loss_spread)).all()
        assert (gamma * values.var(axis=1).mean(axis=0) <= np.square(c.report_noise)).all()
        assert (np.array(c.reference) - g.losses(theta)).min() >= 0.3
        assert np.linalg.norm(gradients, axis=-1).max() <= c.gradient_bound
    zero = g.example_gradients(np.zeros(3))
    tiny = g.constants(cohort=2, batch_size=2, radius=1e-9, margin=0.3)
    exact = ((zero - zero.mean(axis=1, keepdims=True)) ** 2).sum(axis=-1).mean(axis=1).max(axis=0) / 2
    np.testing.assert_allclose(np.square(tiny.gradient_noise), exact, rtol=1e-6)


def test_no_logistic_run_leaves_its_ball():
    g = Logistic.random(4, clients=3)
    steps = StepSizes(local_steps=2, local_lr=0.5, server_lr=1.5)
    c = g.constants(cohort=1, batch_size=1, radius=g.radius(steps, 8), margin=0.5)
    method = Quadratics.random(0).method(c, StepSizes(local_steps=2, local_lr=0.5), 1)
    plan = Plan(8, 1, local(steps, 1), evaluate_every=0)
    farthest = max(float(r.state.model.norm()) for r in simulate(Sequential(g.problem()), method, plan))
    assert 0 < farthest <= g.radius(steps, 8)


# --- bad input ------------------------------------------------------------------------------------------------


def quadratics(**changes):
    good = {"smoothness": [1.0], "points": np.zeros((2, 3, 1, 2)), "offsets": np.zeros((2, 3, 1)), "start": [0.0, 1.0]}
    return Quadratics(**(good | changes))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: quadratics(smoothness=[0.0]), "`smoothness` should be positive"),
        (lambda: quadratics(points=np.zeros((2, 3, 4, 2))), "with 1 tasks"),
        (lambda: quadratics(offsets=np.full((2, 3, 1), -0.1)), "so that no loss is negative"),
        (lambda: quadratics(start=[0.0]), "`start` should hold 2 numbers"),
        (lambda: quadratics().constants(cohort=1, batch_size=1), "Found neither"),
        (lambda: quadratics().constants(cohort=3, batch_size=1, margin=1.0), "`cohort`"),
        (lambda: quadratics().constants(cohort=1, batch_size=1, margin=2.0, reference=[1.0]), "`margin` should be"),
        (lambda: quadratics().constants(cohort=1, batch_size=1, reference=[0.4]), "should exceed the initial losses"),
        (lambda: quadratics().check_steps(StepSizes(local_steps=1, local_lr=0.1, server_lr=1.5)), "`server_lr` should"),
        (lambda: quadratics().check_steps(StepSizes(local_steps=1, local_lr=1.5)), "`local_lr` should be at most"),
        (lambda: Logistic(np.zeros((2, 3, 1)), np.zeros((2, 3, 1))), "should be -1 or 1"),
        (lambda: Logistic(np.zeros((2, 3)), np.ones((2, 3, 1))), "should have shapes"),
    ],
)  # fmt: skip
def test_assumptions_that_do_not_hold_are_named(make, named):
    with pytest.raises(InputError, match=named):
        make()


def test_an_ensemble_refuses_horizons_that_grow_and_steps_of_two_kinds():
    q = quadratics()
    ensemble = Ensemble(q, q.constants(cohort=2, batch_size=1, margin=1.0))
    steps = StepSizes(local_steps=1, local_lr=0.1)
    with pytest.raises(InputError, match="should not increase"):
        ensemble.simulate(steps, [2, 3])
    with pytest.raises(InputError, match="same local steps"):
        ensemble.simulate([steps, StepSizes(local_steps=2, local_lr=0.1)], [2, 2])


def test_constants_can_be_given_to_every_formula():
    q = Quadratics.random(8)
    c = q.constants(cohort=3, batch_size=2, report=1, margin=1.0)
    assert isinstance(c, ProblemConstants)
    assert 0 < largest_base_step(c, 1.0) < 1 / c.total_smoothness
