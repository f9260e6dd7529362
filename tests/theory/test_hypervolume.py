"""Calculus of Φ."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedhv.methods.weights import inverse_slack_sum, log_hypervolume
from fedhv.support.errors import InputError
from fedhv.theory import (
    gradient_bounds,
    gradient_by_autograd,
    gradient_by_identity,
    ideal_weights,
    scale_bounds,
    smoothness_constant,
    task_gradients,
    value_lower_bound,
)

from .cases import deterministic, powers, safe_points


def network(seed, tasks, dtype=torch.float64):
    """m losses of a two-layer network with one hidden layer shared by all tasks, and a random parameter vector."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(12, 4, generator=generator, dtype=dtype)
    labels = torch.randint(0, 3, (tasks, 12), generator=generator)

    def losses(theta):
        hidden = torch.tanh(inputs @ theta[:20].view(4, 5))
        heads = theta[20:].view(tasks, 5, 3)
        return torch.stack([torch.nn.functional.cross_entropy(hidden @ heads[i], labels[i]) for i in range(tasks)])

    return losses, torch.randn(20 + 15 * tasks, generator=generator, dtype=dtype)


@pytest.mark.parametrize("tasks", [1, 2, 5])
@pytest.mark.parametrize("above", [1e-3, 0.1, 10.0])
def test_gradient_by_identity_equals_autograd(tasks, above):
    for seed in range(5):
        losses, theta = network(seed, tasks)
        f, jacobian = task_gradients(losses, theta)
        reference = f + above * torch.linspace(1, 2, tasks, dtype=torch.float64)
        autograd = gradient_by_autograd(losses, theta, reference)
        identity = gradient_by_identity(jacobian, f, reference)
        assert isinstance(identity, torch.Tensor)
        assert float((identity - autograd).abs().max()) <= 1e-6
        arrays = gradient_by_identity(jacobian.numpy(), f.numpy(), reference.numpy())
        np.testing.assert_allclose(arrays, autograd.numpy(), atol=1e-6)


def test_gradient_in_single_precision():
    losses, theta = network(0, 3, torch.float32)
    f, jacobian = task_gradients(losses, theta)
    autograd = gradient_by_autograd(losses, theta, f + 1)
    assert autograd.dtype == torch.float32
    identity = gradient_by_identity(jacobian, f, f + 1)
    assert float((identity - autograd).abs().max()) <= 1e-6


def test_gradient_agrees_with_finite_differences():
    losses, theta = network(1, 3)
    reference = losses(theta) + 0.5
    gradient = gradient_by_autograd(losses, theta, reference)
    h = 1e-6
    for i in range(0, len(theta), 7):
        step = torch.zeros_like(theta)
        step[i] = h
        high, low = (float(log_hypervolume(losses(theta + s), reference)) for s in (step, -step))
        assert (high - low) / (2 * h) == pytest.approx(float(gradient[i]), abs=1e-7)


def test_parameters_are_left_alone():
    losses, theta = network(2, 2)
    gradient_by_autograd(losses, theta, losses(theta) + 1)
    task_gradients(losses, theta)
    assert not theta.requires_grad
    assert theta.grad is None


@given(point=safe_points())
@deterministic
def test_ideal_weights_are_the_normalised_inverse_slacks(point):
    f, r = point
    w = ideal_weights(f, r)
    assert w.sum() == pytest.approx(1)
    np.testing.assert_allclose(w, (1 / (r - f)) / (1 / (r - f)).sum(), rtol=1e-12)


@given(point=safe_points(), share=st.floats(1e-3, 1))
@deterministic
def test_the_scale_lies_between_its_bounds(point, share):
    f, r = point
    low, high = scale_bounds(r, share * (r - f).min())
    assert low * (1 - 1e-12) <= inverse_slack_sum(f, r) <= high * (1 + 1e-12)


def test_the_scale_attains_its_bounds():
    r = np.array([1.0, 2.0, 5.0])
    low, high = scale_bounds(r, 0.25)
    assert inverse_slack_sum(np.zeros(3), r) == pytest.approx(low)
    assert inverse_slack_sum(r - 0.25, r) == pytest.approx(high)


@given(point=safe_points())
@deterministic
def test_value_is_above_its_lower_bound(point):
    f, r = point
    assert log_hypervolume(f, r) >= value_lower_bound(r) - 1e-9 * np.abs(np.log(r)).sum()


def test_lower_bound_is_attained_by_zero_losses():
    r = np.array([0.1, 3.0])
    assert log_hypervolume(np.zeros(2), r) == pytest.approx(value_lower_bound(r))


@given(
    lips=powers(-3, 3),
    reference=powers(-3, 3),
    share=st.floats(0, 1),
    lift=st.floats(0, 1),
    kind=st.sampled_from(["quadratic", "cosine", "softplus"]),
)
@deterministic
def test_gradients_bound_themselves(lips, reference, share, lift, kind):
    """‖∇f‖² ≤ 2Lf ≤ 2Lr for nonnegative L-smooth functions, at any value f ≤ r."""
    value = share * reference
    if kind == "quadratic":  # L/2 x² + a with the value split between both
        gradient = np.sqrt(2 * lips * (1 - lift) * value)
    elif kind == "cosine":  # A(1 − cos ωx), Aω² = L
        amplitude = reference
        cosine = 1 - value / amplitude
        gradient = np.sqrt(amplitude * lips * (1 - cosine**2))
    else:  # 4L log(1 + e^x) is L-smooth
        gradient = 4 * lips * (1 - np.exp(-value / (4 * lips)))
    (bound,) = gradient_bounds([lips], [reference])
    assert gradient**2 <= 2 * lips * value * (1 + 1e-9)
    assert gradient <= bound * (1 + 1e-9)


def test_self_bound_is_attained_by_a_quadratic():
    lips, r = 3.0, 2.0
    x = np.sqrt(2 * r / lips)  # f(x) = L/2 x² = r
    assert lips * x == pytest.approx(gradient_bounds([lips], [r])[0])


@given(seed=st.integers(0, 10**6), tasks=st.integers(1, 4), share=st.floats(0.02, 0.9))
@deterministic
def test_smoothness_constant(seed, tasks, share):
    """Quadratics: the safe set is convex, so that safe ends make a safe segment."""
    rng = np.random.default_rng(seed)
    lips, centres = 10 ** rng.uniform(-1, 1, tasks), rng.standard_normal((tasks, 3))
    a, b = 0.5 * rng.standard_normal((2, 3))

    def losses(x):
        return lips / 2 * ((x - centres) ** 2).sum(axis=1)

    def gradient(x):
        return (1 / (r - losses(x))) @ (lips[:, None] * (x - centres))

    worst = np.maximum(losses(a), losses(b))
    r = worst + share * worst.max()
    margin = min((r - losses(a)).min(), (r - losses(b)).min())
    change = np.linalg.norm(gradient(a) - gradient(b))
    assert change <= smoothness_constant(lips, r, margin) * np.linalg.norm(a - b) * (1 + 1e-9)


def test_smoothness_constant_is_the_limit_of_a_small_margin():
    """One quadratic at the edge of the safe set: Φ'' / L_Φ → 1 as ρ/r → 0."""
    lips, r, margin = 2.0, 1.0, 1e-4
    curvature = lips / margin + 2 * lips * (r - margin) / margin**2
    assert curvature / smoothness_constant([lips], [r], margin) == pytest.approx(1, abs=1e-3)


def test_smoothness_constant_by_hand():
    assert smoothness_constant([1.0, 3.0], [2.0, 1.0], 0.5) == pytest.approx((1 + 3) / 0.5 + (4 + 6) / 0.25)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: ideal_weights([-0.1, 0.5], [1, 1]), "losses"),
        (lambda: ideal_weights([0.1, 1.5], [1, 1]), "reference"),
        (lambda: ideal_weights([0.1, 1.0], [1, 1]), "reference"),
        (lambda: ideal_weights([0.1], [1, 1]), "losses"),
        (lambda: ideal_weights([0.1, np.nan], [1, 1]), "losses"),
        (lambda: gradient_by_identity(np.ones((3, 2)), [0.1, 0.2], [1, 1]), "task_gradients"),
        (lambda: gradient_by_identity(np.full((2, 2), np.inf), [0.1, 0.2], [1, 1]), "task_gradients"),
        (lambda: gradient_by_identity(np.ones((2, 2)), [0.1, 2], [1, 1]), "reference"),
        (lambda: gradient_by_autograd(lambda x: x**2, torch.ones(2), [1.0, 2.0]), "reference"),
        (lambda: gradient_by_autograd(lambda x: -(x**2), torch.ones(2), [1.0, 2.0]), "losses"),
        (lambda: gradient_by_autograd(lambda x: x.sum(), torch.ones(2), [1.0]), "objectives"),
        (lambda: scale_bounds([1.0, 0.1], 0.5), "reference"),
        (lambda: scale_bounds([1.0, 1.0], 0.0), "margin"),
        (lambda: gradient_bounds([-1.0], [1.0]), "smoothness"),
        (lambda: gradient_bounds([1.0, 1.0], [1.0]), "smoothness"),
        (lambda: smoothness_constant([1.0], [0.0], 0.5), "reference"),
        (lambda: value_lower_bound([0.0]), "reference"),
    ],
)
def test_bad_input_is_named(call, name):
    with pytest.raises(InputError, match=rf"^Parameter `{name}` should "):
        call()
