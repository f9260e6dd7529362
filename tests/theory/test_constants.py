"""Problem constants: derived quantities, and assumptions that do not hold."""

import math

import pytest

from fedhv.support.errors import InputError
from fedhv.theory import ProblemConstants, StepSizes

GOOD = {
    "smoothness": [1.0, 3.0],
    "reference": [2.0, 4.0],
    "initial_losses": [1.0, 1.0],
    "clients": 10,
    "cohort": 4,
    "gradient_noise": [3.0, 4.0],
    "heterogeneity": [1.0, 2.0],
    "loss_spread": [0.1, 0.2],
    "report_noise": [0.3, 0.4],
    "margin": 0.5,
    "floor": 0.25,
}


def test_derived_quantities_by_hand():
    p = ProblemConstants(**GOOD)
    chi = 6 / (4 * 9)
    assert p.tasks == 2
    assert p.participation == 0.4
    assert list(p.gradient_bounds) == pytest.approx([2, math.sqrt(24)])
    assert p.largest_gradient == pytest.approx(math.sqrt(24))
    assert (p.total_smoothness, p.largest_smoothness) == (4, 3)
    assert (p.noise, p.dissimilarity) == (25, 5)
    assert p.participation_heterogeneity == pytest.approx(5 * chi)
    assert p.drift_gradient == pytest.approx(2 * (24 + 4 * 30))
    assert (p.scale_min, p.scale_max) == (0.75, 4)
    assert p.hypervolume_smoothness == pytest.approx(4 / 0.5 + 28 / 0.25)
    assert p.initial_value == pytest.approx(-math.log(3))
    assert p.initial_gap == pytest.approx(math.log(8) - math.log(3))
    assert p.report_error_bound() == pytest.approx(chi * 0.05 + 0.25)
    assert p.report_error_bound(orthogonal=True) == pytest.approx(chi * 0.05 + 0.25 / 4)
    assert (p.rho, p.rho_clip) == (0.5, 0.25)


def test_defaults_are_exact_gradients_reports_and_the_margin_as_floor():
    p = ProblemConstants(**{k: GOOD[k] for k in ("smoothness", "reference", "initial_losses", "clients", "cohort")})
    assert (p.noise, p.dissimilarity, p.report_error_bound()) == (0, 0, 0)
    assert p.replace(margin=0.5).rho_clip == 0.5
    with pytest.raises(InputError, match=r"^Parameter `margin` should be given"):
        p.hypervolume_smoothness  # noqa: B018


def test_replace_checks_again():
    p = ProblemConstants(**GOOD)
    assert p.replace(cohort=10).participation_heterogeneity == 0
    with pytest.raises(InputError, match="`cohort`"):
        p.replace(cohort=11)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"smoothness": [1.0, -1.0]}, "smoothness"),
        ({"smoothness": [0.0, 0.0]}, "smoothness"),
        ({"smoothness": [1.0]}, "smoothness"),
        ({"reference": [2.0, 0.0]}, "reference"),
        ({"reference": [2.0, 1.0]}, "reference"),
        ({"reference": [2.0, 0.5]}, "reference"),
        ({"reference": [[2.0, 4.0]]}, "reference"),
        ({"reference": [2.0, math.inf]}, "reference"),
        ({"initial_losses": [-0.1, 1.0]}, "initial_losses"),
        ({"initial_losses": [math.nan, 1.0]}, "initial_losses"),
        ({"clients": 0, "cohort": 0}, "clients"),
        ({"cohort": 0}, "cohort"),
        ({"cohort": 11}, "cohort"),
        ({"cohort": 2.5}, "cohort"),
        ({"cohort": math.nan}, "cohort"),
        ({"clients": math.inf}, "clients"),
        ({"gradient_noise": [-1.0, 0.0]}, "gradient_noise"),
        ({"heterogeneity": [1.0]}, "heterogeneity"),
        ({"loss_spread": [math.inf, 0.0]}, "loss_spread"),
        ({"report_noise": [0.0, -1.0]}, "report_noise"),
        ({"margin": 0.0}, "margin"),
        ({"margin": 1.5}, "margin"),
        ({"floor": 0.0}, "floor"),
        ({"floor": 0.6}, "floor"),
        ({"gradient_bound": 1.0}, "gradient_bound"),
        ({"gradient_bound": math.nan}, "gradient_bound"),
    ],
)
def test_assumptions_that_do_not_hold_are_named(change, name):
    with pytest.raises(InputError, match=rf"^Parameter `{name}` should .*Found `{name}"):
        ProblemConstants(**(GOOD | change))


def test_step_sizes():
    steps = StepSizes(local_steps=5, local_lr=0.1, server_lr=2.0)
    assert steps.local == pytest.approx(0.5)
    assert steps.effective == pytest.approx(1)
    assert steps.drift == pytest.approx(0.01 * 4 * 9)
    assert StepSizes(local_steps=1, local_lr=0.1).drift == 0


@pytest.mark.parametrize("change", [{"local_steps": 0}, {"local_lr": 0.0}, {"server_lr": -1.0}, {"local_lr": math.nan}])
def test_bad_steps_are_named(change):
    (name,) = change
    with pytest.raises(InputError, match=rf"^Parameter `{name}` should "):
        StepSizes(**({"local_steps": 5, "local_lr": 0.1, "server_lr": 1.0} | change))
