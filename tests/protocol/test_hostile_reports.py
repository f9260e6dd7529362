"""How far false reports can move the weights: breakdown points of the three rules, cap and smoothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems import Point

from fedhv import FedHV, InputError, Uniform, calibrate, run
from fedhv.methods.base import State, drive
from fedhv.methods.weights import capped_weights
from fedhv.problem.parameters import Layout
from fedhv.protocol.aggregation import aggregate_reports, trimmed_away
from fedhv.protocol.requests import Train, TrainReplies, TrainReply
from fedhv.protocol.screening import Screening
from fedhv.runs.config import load_setting

LAYOUT = Layout.of(Point(), 2)
RULES = ("mean", "median", "trimmed")
HOSTILE = (1e9, 0.0, 1e-3, 50.0)


def reports(rows) -> torch.Tensor:
    return torch.tensor(np.array(rows), dtype=torch.float64)


def test_the_three_rules_by_hand():
    given = reports([[1.0, 9.0], [2.0, 1.0], [4.0, 2.0], [100.0, 3.0], [3.0, 5.0]])
    assert aggregate_reports(given).tolist() == [22.0, 4.0]
    assert aggregate_reports(given, "median").tolist() == [3.0, 3.0]
    assert aggregate_reports(given, "trimmed", 0.2).tolist() == [3.0, 10 / 3]
    assert aggregate_reports(given[:4], "median").tolist() == [3.0, 2.5]  # between the two in the middle
    assert aggregate_reports(given[:1], "trimmed", 0.4).tolist() == [1.0, 9.0]


def test_a_trimmed_mean_cuts_at_least_what_it_is_asked_to():
    assert [trimmed_away(m, 0.2) for m in (1, 2, 3, 4, 5, 6, 10, 11)] == [0, 0, 1, 1, 1, 2, 2, 3]
    assert [trimmed_away(m, 0.0) for m in (1, 5)] == [0, 0]
    assert trimmed_away(10, 0.3) == 3  # not 4 for a rounding error


@pytest.mark.parametrize("rule", RULES)
def test_equal_reports_are_their_own_aggregate(rule):
    assert aggregate_reports(reports([[0.7, 1.3]] * 7), rule, 0.2).tolist() == pytest.approx([0.7, 1.3], abs=1e-15)


@given(
    st.lists(st.floats(0.1, 5.0), min_size=3, max_size=12),
    st.lists(st.floats(0.0, 1e9), min_size=1, max_size=5),
    st.randoms(use_true_random=False),
)
def test_within_the_breakdown_point_the_robust_rules_stay_among_the_honest(honest, false, random):
    everyone = [*honest, *false]
    random.shuffle(everyone)
    m, h = len(everyone), len(false)
    low, high = min(honest) - 1e-12, max(honest) + 1e-12
    if h < m / 2:
        assert low <= float(aggregate_reports(reports([[x] for x in everyone]), "median")) <= high
    trim = min(h / m + 1e-6, 0.49)
    if h <= trimmed_away(m, trim):
        assert low <= float(aggregate_reports(reports([[x] for x in everyone]), "trimmed", trim)) <= high


@given(st.integers(2, 20), st.floats(1.0, 1e9))
def test_one_report_moves_the_mean_as_far_as_it_likes(m, claim):
    honest = reports([[1.0]] * (m - 1))
    moved = aggregate_reports(torch.cat([honest, reports([[claim]])]))
    assert float(moved) == pytest.approx((m - 1 + claim) / m)


def weights_of(method: FedHV, rows, before=None) -> torch.Tensor:
    """The weights that one round of FedHV finds from these reports."""
    given = reports(rows).float()
    model = torch.zeros(3)
    m = given.shape[1]
    start = torch.full((m,), 1 / m) if before is None else before
    answer = TrainReplies(None, LAYOUT, torch.zeros(3), given)  # type: ignore[arg-type]
    return drive(method.conversation(State(model, start)), lambda request: answer).weights


@pytest.mark.parametrize("false", HOSTILE)
@pytest.mark.parametrize("rule", ["median", "trimmed"])
def test_a_fifth_of_the_cohort_moves_robust_weights_by_less_than_five_hundredths(rule, false):
    rng = np.random.default_rng(0)
    method = FedHV(reference=(2.6, 2.6), aggregate=rule, trim=0.2)
    for _ in range(30):
        honest = rng.normal([1.6, 1.9], 0.1, (10, 2))
        lying = honest.copy()
        lying[:2, 0] = false
        assert (weights_of(method, lying) - weights_of(method, honest)).abs().max() < 0.05


def test_one_client_takes_all_the_weight_of_a_mean():
    lying = [[1.0, 1.0]] * 9 + [[1e9, 1.0]]
    assert weights_of(FedHV(reference=(2.6, 2.6)), lying)[0] > 0.999
    assert weights_of(FedHV(reference=(2.6, 2.6), weight_cap=0.7), lying).tolist() == pytest.approx([0.7, 0.3])
    smooth = weights_of(FedHV(reference=(2.6, 2.6), smoothing=0.9), lying)
    assert smooth.tolist() == pytest.approx([0.55, 0.45], abs=1e-4)


def test_a_bound_on_reports_leaves_the_liar_out():
    screening = Screening(max_report=10.0)
    layout = Layout.of(Point(), 2)
    request = Train(torch.zeros(layout.d), report="all")

    def objection(*report):
        return screening.objection(request, layout, TrainReply(torch.zeros(layout.d), torch.tensor(report)))

    assert objection(1e9, 1.0) == "a reported loss of 1e+09"
    assert objection(9.0, 1.0) is None


# --- cap --------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=8), st.floats(0.0, 1.0))
def test_capped_weights_sum_to_one_keep_their_order_and_never_exceed_the_cap(raw, where):
    w = torch.tensor(raw, dtype=torch.float64)
    w = w / w.sum()
    cap = 1 / len(w) + where * (1 - 1 / len(w))
    capped = capped_weights(w, cap)
    assert float(capped.sum()) == pytest.approx(1.0)
    assert float(capped.max()) <= cap + 1e-9
    assert (capped[w.argsort()].diff() >= -1e-9).all()
    if float(w.max()) <= cap:
        torch.testing.assert_close(capped, w)
    free = capped < cap - 1e-9  # those below the cap keep their proportions
    ratios = capped[free] / w[free]
    assert len(ratios) == 0 or float(ratios.max() - ratios.min()) < 1e-6 * float(ratios.max())


def test_a_cap_below_one_over_m_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match=r"weight_cap` should be at least 1/m = 0\.5"):
        run("digits", FedHV(weight_cap=0.4), rounds=1, out=tmp_path / "r")
    assert not (tmp_path / "r").exists()
    with pytest.raises(InputError, match="should be at least 1/m"):
        capped_weights(torch.tensor([0.5, 0.5]), 0.4)


def test_weights_that_have_vanished_share_what_the_cap_leaves():
    assert capped_weights(torch.tensor([1.0, 0.0, 0.0]), 0.5).tolist() == [0.5, 0.25, 0.25]
    assert capped_weights(torch.tensor([0.0, 1.0]), 0.8).tolist() == pytest.approx([0.2, 0.8])


@given(st.floats(0.0, 0.99))
def test_smoothed_weights_are_between_the_old_and_the_new(beta):
    before = torch.tensor([0.9, 0.1])
    new = weights_of(FedHV(reference=(3.0, 3.0)), [[1.0, 2.0]])
    smooth = weights_of(FedHV(reference=(3.0, 3.0), smoothing=beta), [[1.0, 2.0]], before)
    torch.testing.assert_close(smooth, (1 - beta) * new + beta * before)


def test_by_default_nothing_of_this_changes_a_bit():
    rows = np.random.default_rng(1).uniform(0.5, 2.0, (7, 3))
    plain = weights_of(FedHV(reference=(3.0, 3.0, 3.0)), rows)
    explicit = FedHV(reference=(3.0, 3.0, 3.0), aggregate="mean", weight_cap=None, smoothing=0.0)
    assert torch.equal(plain, weights_of(explicit, rows))
    mean = torch.tensor(rows, dtype=torch.float64).float().double().mean(dim=0)
    inverse = 1 / (3.0 - mean)
    assert plain.tolist() == pytest.approx((inverse / inverse.sum()).tolist(), abs=1e-7)


@pytest.mark.parametrize(
    "wrong",
    [{"aggregate": "mode"}, {"trim": 0.5}, {"trim": -0.1}, {"trim": "much"}, {"weight_cap": 0.0}, {"weight_cap": 1.1},
     {"smoothing": 1.0}, {"smoothing": -0.1}],
)  # fmt: skip
def test_options_that_mean_nothing_are_refused(wrong):
    with pytest.raises(InputError, match=f"`{next(iter(wrong))}`"):
        FedHV(**wrong)


def test_a_calibration_reduces_reports_as_the_method_does():
    changes = ["calibration.rounds=2", "training.local_steps=1", "faults.false_report=0.2", "faults.claim=1e9",
               "faults.pattern=same"]  # fmt: skip
    robust = calibrate(load_setting("digits", [*changes, "methods.fedhv.aggregate=median"]))
    assert max(robust.values) < 3
    assert max(calibrate(load_setting("digits", changes)).values) > 1e6


def test_uniform_reports_by_the_same_rules():
    method = Uniform(report="all", aggregate="median")
    answer = TrainReplies(None, LAYOUT, torch.zeros(3), reports([[1.0], [2.0], [50.0]]))  # type: ignore[arg-type]
    state = drive(method.conversation(State(torch.zeros(3), torch.ones(1))), lambda request: answer)
    assert state.record["report"] == [2.0]
