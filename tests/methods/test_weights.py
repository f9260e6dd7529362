"""Inverse-slack weights, the log-hypervolume and its gradient."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedhv import InputError, inverse_slack_sum, inverse_slack_weights, log_hypervolume, slacks

TINY = 1e-300
"""A floor that never acts."""

magnitudes = st.floats(-12, 12).map(lambda exponent: 10.0**exponent)
slack_vectors = st.lists(magnitudes, min_size=1, max_size=8).map(np.array)


def weights_of(s, floor=TINY):
    """The weights of given slacks: with r = 0 and f = −s nothing is lost to subtraction."""
    s = np.asarray(s, dtype=float)
    return inverse_slack_weights(-s, np.zeros_like(s), floor)


def exact(s):
    """The weights in rational arithmetic."""
    inverse = [1 / Fraction(float(value)) for value in s]
    return [float(value / sum(inverse)) for value in inverse]


# --- values -----------------------------------------------------------------------------------------------


def test_weights_are_the_normalised_inverse_slacks():
    # slacks 4, 1, 2: inverses 1/4, 1, 1/2 of sum 7/4
    w = inverse_slack_weights([1.0, 2.0, 0.5], [5.0, 3.0, 2.5])
    np.testing.assert_allclose(w, [1 / 7, 4 / 7, 2 / 7], rtol=1e-15)


@pytest.mark.parametrize("kind", [list, np.array, lambda values: torch.tensor(values, dtype=torch.float64)])
def test_a_slack_below_the_floor_counts_as_the_floor(kind):
    # slacks 0.1 and −7 become 0.5; the third stays 1: inverses 2, 2, 1
    w = inverse_slack_weights(kind([0.9, 8.0, 0.0]), kind([1.0, 1.0, 1.0]), floor=0.5)
    np.testing.assert_allclose(w, [0.4, 0.4, 0.2], rtol=1e-15)


def test_the_default_floor_is_the_papers():
    w = inverse_slack_weights([5.0, 0.0], [1.0, 1.0])
    np.testing.assert_allclose(w[1], 1e-6 / (1 + 1e-6), rtol=1e-12)


def test_slacks_are_reference_minus_loss_unclipped():
    np.testing.assert_array_equal(slacks([1.0, 4.0], [3.0, 3.0]), [2.0, -1.0])


@given(slack_vectors)
def test_weights_equal_rational_arithmetic_from_1e_minus_12_to_1e12(s):
    np.testing.assert_allclose(weights_of(s), exact(s), rtol=1e-14)


@pytest.mark.parametrize("m", [1, 2, 3, 5, 7, 10, 49, 1000])
@pytest.mark.parametrize("slack", [1e-12, 0.1, 1 / 3, 1.0, 1e12])
def test_equal_slacks_give_exactly_uniform_weights(m, slack):
    s = np.full(m, slack)
    assert (weights_of(s) == 1 / m).all()
    w = inverse_slack_weights(torch.from_numpy(-s), torch.zeros(m, dtype=torch.float64), TINY)
    assert (w == 1 / m).all()


@given(magnitudes)
def test_one_task_has_weight_exactly_one(s):
    assert weights_of([s]).tolist() == [1.0]
    assert inverse_slack_weights(torch.tensor([0.3]), [s]).tolist() == [1.0]


# --- properties -------------------------------------------------------------------------------------------


@given(slack_vectors)
def test_weights_are_positive_and_sum_to_one(s):
    w = weights_of(s)
    assert (w > 0).all()
    assert abs(w.sum() - 1) < 1e-14


@given(slack_vectors, st.randoms(use_true_random=False))
def test_weights_are_permutation_equivariant(s, random):
    order = list(range(len(s)))
    random.shuffle(order)
    np.testing.assert_allclose(weights_of(s[order]), weights_of(s)[order], rtol=1e-14)


@given(slack_vectors, magnitudes)
def test_weights_are_invariant_to_a_common_scaling_of_the_slacks(s, scale):
    np.testing.assert_allclose(weights_of(scale * s), weights_of(s), rtol=1e-13)


@given(
    st.lists(st.floats(-3, 3), min_size=2, max_size=6),
    st.integers(0, 5),
    st.floats(1e-6, 3),
    st.sampled_from([1e-6, 1e-2, 1.0]),
)
def test_a_tasks_weight_does_not_fall_and_the_others_do_not_rise_when_its_loss_rises(losses, i, rise, floor):
    i %= len(losses)
    reference = np.full(len(losses), 2.0)
    before = inverse_slack_weights(losses, reference, floor)
    losses[i] += rise
    after = inverse_slack_weights(losses, reference, floor)
    assert after[i] >= before[i] - 1e-15
    others = np.arange(len(losses)) != i
    assert (after[others] <= before[others] + 1e-15).all()


def test_a_tasks_weight_rises_strictly_with_its_loss_above_the_floor():
    assert inverse_slack_weights([1.1, 1.0], [2, 2])[0] > inverse_slack_weights([1.0, 1.0], [2, 2])[0]


@given(st.data(), st.integers(1, 6), st.sampled_from([1e-3, 0.05, 0.7, 10.0]))
def test_weights_are_lipschitz_with_constant_two_over_the_floor(data, m, floor):
    vector = st.lists(st.floats(-5, 5), min_size=m, max_size=m).map(np.array)
    f, reference = data.draw(vector), data.draw(vector)
    # both far steps and small ones, where the bound is closest
    g = f + data.draw(st.sampled_from([1e-4, 1e-2, 1.0])) * data.draw(vector)
    change = np.abs(inverse_slack_weights(f, reference, floor) - inverse_slack_weights(g, reference, floor)).sum()
    assert change <= 2 / floor * np.abs(f - g).max() + 1e-13


def test_the_lipschitz_constant_is_of_the_right_order():
    # at s = (2ρ, 2ρ) a step of (δ, −δ) moves the weights by δ/2ρ + O(δ²), a quarter of the bound
    floor, step = 0.1, 1e-6
    f = np.array([-2 * floor, -2 * floor])
    w = [inverse_slack_weights(f + sign * step * np.array([1, -1]), [0, 0], floor) for sign in (0, 1)]
    assert np.abs(w[1] - w[0]).sum() == pytest.approx(step / (2 * floor), rel=1e-4)


# --- kinds of input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(s=st.lists(magnitudes, min_size=1, max_size=6))
def test_numpy_and_torch_agree_and_keep_their_kind(dtype, s):
    f = -np.array(s, dtype=dtype)
    array = inverse_slack_weights(f, np.zeros_like(f), 1e-14)
    tensor = inverse_slack_weights(torch.from_numpy(f), torch.zeros(len(s), dtype=getattr(torch, dtype)), 1e-14)
    assert isinstance(array, np.ndarray)
    assert isinstance(tensor, torch.Tensor)
    assert array.dtype == f.dtype
    assert tensor.dtype == getattr(torch, dtype)
    np.testing.assert_allclose(array, tensor.numpy(), rtol=1e-6 if dtype == "float32" else 1e-14)
    np.testing.assert_allclose(array, exact(-f), rtol=1e-6 if dtype == "float32" else 1e-14)
    assert (array > 0).all()


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_leading_axes_are_batches(kind):
    losses = np.array([[[1.0, 2.0], [0.5, 0.1]], [[0.0, 2.5], [2.9, 1.0]]])
    reference = np.array([3.0, 3.0])
    together = inverse_slack_weights(kind(losses), kind(reference))
    assert tuple(together.shape) == (2, 2, 2)
    for index in np.ndindex(2, 2):
        one = inverse_slack_weights(losses[index], reference)
        np.testing.assert_allclose(np.asarray(together[index]), one, rtol=1e-15)
    assert tuple(log_hypervolume(kind(losses), kind(reference)).shape) == (2, 2)
    assert tuple(inverse_slack_sum(kind(losses), kind(reference)).shape) == (2, 2)


def test_sequences_whole_numbers_and_mixtures_are_taken():
    expected = [0.25, 0.75]
    assert inverse_slack_weights([1, 3], (4, 4)).tolist() == expected
    assert inverse_slack_weights(torch.tensor([1, 3]), [4, 4]).tolist() == expected
    mixed = inverse_slack_weights(torch.tensor([1.0, 3.0]), np.array([4.0, 4.0]))
    assert isinstance(mixed, torch.Tensor)
    assert mixed.tolist() == expected


# --- the objective they descend ---------------------------------------------------------------------------


@given(st.integers(1, 5), st.integers(0, 1000))
def test_the_gradient_of_the_log_hypervolume_is_c_times_the_weighted_gradient(m, seed):
    rng = np.random.default_rng(seed)
    theta = torch.tensor(rng.normal(size=4), requires_grad=True)
    centres = torch.tensor(rng.normal(size=(m, 4)))
    losses = 0.5 * (theta - centres).square().sum(dim=1)
    reference = losses.detach() + torch.tensor(rng.uniform(0.01, 3, size=m))
    (of_phi,) = torch.autograd.grad(log_hypervolume(losses, reference), theta, retain_graph=True)
    w = inverse_slack_weights(losses, reference, TINY)
    c = inverse_slack_sum(losses, reference).item()
    weighted = sum(w[i] * torch.autograd.grad(losses[i], theta, retain_graph=True)[0] for i in range(m))
    torch.testing.assert_close(of_phi, c * weighted, rtol=1e-9, atol=1e-9)


def test_log_hypervolume_and_its_scale_have_the_papers_values():
    # slacks 2 and 4: Φ = −log 8, c = 1/2 + 1/4
    assert log_hypervolume([1.0, 0.0], [3.0, 4.0]) == pytest.approx(-np.log(8))
    assert inverse_slack_sum([1.0, 0.0], [3.0, 4.0]) == pytest.approx(0.75)


def test_no_gradient_flows_through_the_weights():
    theta = torch.tensor(2.0, requires_grad=True)
    losses = torch.stack([theta**2, 3 * theta])
    reference = torch.tensor([5.0, 8.0], requires_grad=True)
    w = inverse_slack_weights(losses, reference)
    assert not w.requires_grad
    # slacks 1 and 2, weights 2/3 and 1/3: d(Σ wᵢfᵢ)/dθ = 2/3 · 4 + 1/3 · 3, without a term from dw
    (gradient,) = torch.autograd.grad((w * losses).sum(), theta)
    assert gradient.item() == pytest.approx(11 / 3)


# --- bad input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [inverse_slack_weights, log_hypervolume, inverse_slack_sum, slacks])
@pytest.mark.parametrize(
    ("losses", "reference"),
    [
        ([1.0, 2.0], [3.0]),
        ([1.0], [3.0, 3.0]),
        ([], []),
        (1.0, 2.0),
        ([float("nan"), 1.0], [3.0, 3.0]),
        ([1.0, 1.0], [float("inf"), 3.0]),
        (torch.tensor([float("nan")]), torch.tensor([1.0])),
    ],
)
def test_losses_and_references_that_do_not_fit_or_are_not_finite_are_refused(function, losses, reference):
    with pytest.raises(InputError, match="should"):
        function(losses, reference)


@pytest.mark.parametrize("floor", [0.0, -1.0, float("nan"), float("inf")])
def test_a_floor_that_is_not_positive_and_finite_is_refused(floor):
    with pytest.raises(InputError, match="floor"):
        inverse_slack_weights([1.0], [2.0], floor)


@pytest.mark.parametrize("function", [log_hypervolume, inverse_slack_sum])
def test_the_log_hypervolume_is_refused_outside_its_domain(function):
    with pytest.raises(InputError, match="below its reference"):
        function([1.0, 3.0], [2.0, 3.0])
    with pytest.raises(InputError, match="below its reference"):
        function(torch.tensor([1.0, 3.5]), torch.tensor([2.0, 3.0]))


def test_a_reference_is_not_rounded_to_the_losses_precision():
    losses, reference = np.array([2.0, 1.0], np.float32), [2.00000003, 1.00000001]
    weights = inverse_slack_weights(losses, reference, floor=1e-12)
    s = np.array(reference) - losses.astype(np.float64)
    assert weights == pytest.approx((1 / s) / (1 / s).sum(), rel=1e-5)


def test_batches_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="one number per task"):
        inverse_slack_weights(np.zeros((2, 3)), np.ones((5, 3)))
