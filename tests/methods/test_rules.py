"""Loss-only rules: golden values by hand, and what holds for all of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import Point

from fedhv import FedHV, InputError, LocalTraining, State, Train
from fedhv.methods import METHODS, RULES, drive, make_method, method_class
from fedhv.methods.rules.base import LossRule
from fedhv.problem.parameters import Layout
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.requests import TrainReplies

COHORT = Cohort([0, 1], round=0, seed=0, local=LocalTraining())
MODEL = torch.zeros(4)


def make(name, **parameters):
    if name == "fedhv":
        parameters = {"reference": (3e12,) * 8} | parameters
    return make_method(name, parameters)


def play(method, *rounds, state=None):
    """The states after rounds with these reports, one report for all clients."""
    m = len(rounds[0])
    state = state or method.start(MODEL, m)
    states = []
    for losses in rounds:
        reports = torch.tensor([list(losses)] * 2, dtype=torch.float64)
        replies = TrainReplies(COHORT, Layout.of(Point(), 2), torch.ones(4), reports)
        state = drive(method.conversation(state), lambda request, replies=replies: replies)
        states.append(state)
    return states


def weights(method, *rounds):
    return play(method, *rounds)[-1].weights.double().numpy()


def softmax(*scores):
    e = np.exp(np.array(scores) - max(scores))
    return e / e.sum()


# --- golden values ----------------------------------------------------------------------------------------


LN2 = math.log(2)
GOLDEN = [
    ("fixed", {}, [(1.0, 9.0)], [0.5, 0.5]),
    ("fixed", {"preferences": (3.0, 1.0)}, [(1.0, 9.0)], [0.75, 0.25]),
    ("normalised", {}, [(1.0, 4.0), (0.5, 0.5)], [0.8, 0.2]),  # 1/1 to 1/4, whatever came later
    ("normalised", {"preferences": (1.0, 4.0)}, [(1.0, 4.0)], [0.5, 0.5]),
    ("power", {}, [(1.0, 3.0)], [0.25, 0.75]),
    ("power", {"power": 2.0}, [(1.0, 3.0)], [0.1, 0.9]),
    ("power", {"power": -1.0}, [(1.0, 3.0)], [0.75, 0.25]),
    ("power", {"power": 2.0, "preferences": (9.0, 1.0)}, [(1.0, 3.0)], [0.5, 0.5]),
    ("geometric", {}, [(1.0, 3.0)], [0.75, 0.25]),
    ("geometric", {"preferences": (1.0, 3.0)}, [(1.0, 3.0)], [0.5, 0.5]),
    ("stch", {"mu": 0.5}, [(0.0, LN2)], [1 / 3, 2 / 3]),  # λ = 1/2: exp(λ log 2/μ) = 2
    ("stch", {"mu": 0.25, "preferences": (3.0, 1.0)}, [(0.0, LN2)], [0.6, 0.4]),  # 3/4 · 1 to 1/4 · 2
    ("afl", {"rate": 1.0}, [(0.0, LN2)], [1 / 3, 2 / 3]),
    ("afl", {"rate": 1.0}, [(0.0, LN2), (0.0, LN2)], [0.2, 0.8]),  # 1 to 2 · 2
    ("afl", {"rate": 1.0, "preferences": (3.0, 1.0)}, [(0.0, 2 * LN2)], [0.6, 0.4]),  # m p = 1/2: 3 · 1 to 1 · 2
    ("dwa", {"temperature": 1.0}, [(4.0, 2.0)], [0.5, 0.5]),
    ("dwa", {"temperature": 1.0}, [(4.0, 2.0), (1.0, 2.0)], softmax(0.25, 1.0)),
    ("dwa", {"temperature": 0.5}, [(9.0, 9.0), (4.0, 2.0), (1.0, 2.0)], softmax(0.5, 2.0)),
    ("famo", {}, [(1.0, 3.0)], [0.75, 0.25]),  # no two reports yet: z is uniform
    # log-falls (log 2, 0), z = 1/2: δ = (log 2)/4 · (1, −1), ξ = −δ; then z/F with F = (1, 3)
    ("famo", {"rate": 1.0, "decay": 0.0}, [(2.0, 3.0), (1.0, 3.0)], softmax(-LN2 / 4, LN2 / 4 - math.log(3))),
    ("uncertainty", {"rate": 2.0}, [(1.0, 1.0 + LN2)], [2 / 3, 1 / 3]),  # s = (0, log 2)
    ("uncertainty", {"rate": 2.0}, [(1.0, 1.0 + LN2), (1.0, 2.0)], [2 / 3, 1 / 3]),  # at rest
    ("imtl-l", {"rate": 1.0}, [(1.0, 1.0 + LN2)], [2 / 3, 1 / 3]),  # s = (0, −log 2)
    ("imtl-l", {"rate": 1.0}, [(1.0, 1.0 + LN2), (1.0, 2.0)], [2 / 3, 1 / 3]),
    ("fedhv-moving", {"factor": 2.0}, [(1.0, 3.0)], [3 / 8, 5 / 8]),  # r = 6, slacks 5 and 3
    ("fedhv-moving", {"factor": 2.0, "preferences": (5.0, 3.0)}, [(1.0, 3.0)], [0.5, 0.5]),
    ("fedhv-moving", {"factor": 2.0, "decay": 0.5}, [(8.0, 1.0), (1.0, 3.0)], [5 / 12, 7 / 12]),  # r = 8: 7 and 5
    # own: maxima (4, 3) after a half's decay of (8, 1); r = (8, 6), slacks 7 and 3
    ("fedhv-moving", {"factor": 2.0, "decay": 0.5, "scope": "own"}, [(8.0, 1.0), (1.0, 3.0)], [0.3, 0.7]),
    ("fedhv", {"reference": (2.0, 4.0)}, [(1.0, 1.0)], [0.75, 0.25]),
    ("fedhv", {"reference": (2.0, 4.0), "preferences": (1.0, 3.0)}, [(1.0, 1.0)], [0.5, 0.5]),
]


@pytest.mark.parametrize(("name", "parameters", "rounds", "expected"), GOLDEN)
def test_golden_values(name, parameters, rounds, expected):
    np.testing.assert_allclose(weights(make(name, **parameters), *rounds), expected, rtol=1e-6)


def test_every_rule_has_a_golden_value():
    assert set(RULES) <= {name for name, *_ in GOLDEN}


# --- what holds for all -----------------------------------------------------------------------------------


ALL = [*RULES, "fedhv"]
LOSSES = st.lists(st.floats(1e-9, 1e9), min_size=2, max_size=5)
ORDINARY = st.lists(st.floats(0.05, 4.0), min_size=2, max_size=5)


def sequences(losses):
    """Three rounds of reports of the same number of tasks."""
    return losses.flatmap(lambda first: st.tuples(st.just(first), *[st.permutations(first)] * 2))


def fitting(name, tasks):
    return make(name, reference=(3e12,) * tasks) if name == "fedhv" else make(name)


@pytest.mark.parametrize("name", ALL)
@given(rounds=sequences(LOSSES))
@settings(max_examples=25)
def test_weights_lie_on_the_simplex_whatever_the_losses(name, rounds):
    for state in play(fitting(name, len(rounds[0])), *rounds):
        assert state.weights.dtype == torch.float32
        assert bool((state.weights >= 0).all())
        assert float(state.weights.sum()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_losses_of_zero_leave_finite_weights(name):
    for rounds in ([(0.0, 0.0)] * 3, [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0)]):
        w = weights(fitting(name, 2), *rounds)
        assert np.isfinite(w).all()
        assert w.sum() == pytest.approx(1)


@pytest.mark.parametrize("name", ALL)
@given(rounds=sequences(ORDINARY), random=st.randoms(use_true_random=False))
@settings(max_examples=25)
def test_permuting_the_tasks_permutes_the_weights(name, rounds, random):
    order = list(range(len(rounds[0])))
    random.shuffle(order)
    method = fitting(name, len(order))
    straight = weights(method, *rounds)
    permuted = weights(method, *[[losses[i] for i in order] for losses in rounds])
    np.testing.assert_allclose(permuted, straight[order], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ALL)
@given(loss=st.floats(0.05, 4.0), tasks=st.integers(1, 5))
@settings(max_examples=15)
def test_equal_losses_give_the_preferences(name, loss, tasks):
    rounds = [(loss,) * tasks, (loss / 2,) * tasks]
    np.testing.assert_allclose(weights(fitting(name, tasks), *rounds), 1 / tasks, rtol=1e-5)


PROPORTIONAL = {"fixed", "normalised", "power", "geometric", "dwa", "famo", "fedhv-moving", "fedhv"}
"""Rules of which equal losses with preferences p have exactly the weights p."""


@pytest.mark.parametrize("name", sorted(PROPORTIONAL))
def test_preferences_are_the_weights_where_the_losses_say_nothing(name):
    extra = {"reference": (3.0, 3.0)} if name == "fedhv" else {}
    found = weights(make(name, preferences=(3.0, 1.0), **extra), (1.0, 1.0), (1.0, 1.0))
    np.testing.assert_allclose(found, [0.75, 0.25], rtol=1e-6)


@pytest.mark.parametrize("name", ALL)
@given(rounds=sequences(st.lists(st.floats(0.05, 4.0), min_size=3, max_size=3)))
@settings(max_examples=15)
def test_a_larger_preference_never_lowers_a_weight(name, rounds):
    extra = {"reference": (9.0,) * 3} if name == "fedhv" else {}
    before = weights(make(name, preferences=(1.0, 1.0, 1.0), **extra), *rounds)
    after = weights(make(name, preferences=(2.0, 1.0, 1.0), **extra), *rounds)
    assert after[0] >= before[0] - 1e-6
    np.testing.assert_allclose(before, weights(make(name, **extra), *rounds), rtol=1e-6)  # equal ones change nothing


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("preference", [1.0, 0.1, 7.0])
def test_equal_preferences_give_the_bits_of_none(name, preference):
    rounds = [(0.9, 1.7, 0.3), (0.8, 1.1, 0.25), (0.7, 1.2, 0.2)]
    extra = {"reference": (9.0,) * 3} if name == "fedhv" else {}
    preferring = play(make(name, preferences=(preference,) * 3, **extra), *rounds)
    for one, other in zip(play(make(name, **extra), *rounds), preferring, strict=True):
        assert torch.equal(one.weights, other.weights)


SCALE_FREE = {"fixed", "normalised", "power", "geometric", "dwa", "famo", "fedhv-moving"}
"""Rules whose weights do not change when all losses are multiplied by one number."""


@pytest.mark.parametrize("name", ALL)
def test_scale_behaviour(name):
    rounds = [(0.5, 2.0, 1.0), (0.4, 1.0, 0.9)]
    extra = {"reference": (9.0,) * 3} if name == "fedhv" else {}
    straight = weights(make(name, **extra), *rounds)
    scaled = weights(make(name, **extra), *[[3 * loss for loss in losses] for losses in rounds])
    same = bool(np.allclose(straight, scaled, rtol=1e-5))
    assert same == (name in SCALE_FREE)


@pytest.mark.parametrize("name", ["normalised", "geometric", "famo"])
def test_a_task_in_other_units_has_its_weight_in_their_inverse(name):
    rounds = [(0.5, 2.0), (0.4, 1.0)]
    ratio = np.divide(*weights(make(name), *rounds))
    other = np.divide(*weights(make(name), *[(10 * a, b) for a, b in rounds]))
    assert other == pytest.approx(ratio / 10, rel=1e-5)


# --- limits of the knob -----------------------------------------------------------------------------------


REPORTS = [(0.9, 1.0, 0.3), (0.8, 1.0, 0.2)]
UNIFORM = {
    "power": {"power": 0.0},
    "stch": {"mu": 1e9},
    "afl": {"rate": 1e-9},
    "dwa": {"temperature": 1e9},
    "uncertainty": {"rate": 1e-9},
    "imtl-l": {"rate": 1e-9},
    "fedhv-moving": {"factor": 1e9},
    "fedhv": {"reference": (1e9, 1e9, 1e9)},
}
MINMAX = {
    "power": {"power": 1e3},
    "stch": {"mu": 1e-4},
    "afl": {"rate": 1e4},
    "fedhv-moving": {"factor": 1 + 1e-9},
    "fedhv": {"reference": (1 + 1e-9,) * 3, "floor": 1e-12},
}
GEOMETRIC = {"power": {"power": -1.0}, "famo": {"rate": 1e-12}}


@pytest.mark.parametrize("name", UNIFORM)
def test_one_end_of_the_knob_is_uniform(name):
    np.testing.assert_allclose(weights(make(name, **UNIFORM[name]), *REPORTS), 1 / 3, rtol=1e-4)


@pytest.mark.parametrize("name", MINMAX)
def test_the_other_end_is_min_max(name):
    np.testing.assert_allclose(weights(make(name, **MINMAX[name]), *REPORTS), [0, 1, 0], atol=1e-6)


def test_without_temperature_dwa_weighs_the_task_that_fell_by_the_smallest_factor():
    found = weights(make("dwa", temperature=1e-3), (4.0, 2.0, 1.0), (2.0, 1.9, 0.1))
    np.testing.assert_allclose(found, [0, 1, 0], atol=1e-6)


def test_a_fast_famo_weighs_the_task_whose_loss_fell_least():
    found = weights(make("famo", rate=1e4), (4.0, 2.0, 1.0), (1.0, 1.9, 0.1))
    np.testing.assert_allclose(found, [0, 1, 0], atol=1e-6)


@pytest.mark.parametrize("name", GEOMETRIC)
def test_some_ends_are_the_geometric_mean(name):
    expected = weights(make("geometric"), *REPORTS)
    np.testing.assert_allclose(weights(make(name, **GEOMETRIC[name]), *REPORTS), expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["uncertainty", "imtl-l"])
def test_learned_scales_come_to_rest_at_the_geometric_mean(name):
    losses = (0.5, 2.0, 1.0)
    expected = weights(make("geometric"), losses)
    np.testing.assert_allclose(weights(make(name, rate=0.5), *[losses] * 100), expected, rtol=1e-5)


def test_the_moving_reference_in_units_of_each_tasks_own_maximum():
    """c → ∞: 1/P, uniform in these units; c → 1: all weight to the task that has come least far from its maximum."""
    rounds = [(1.0, 4.0), (0.5, 3.0)]
    far = weights(make("fedhv-moving", scope="own", decay=1.0, factor=1e9), *rounds)
    np.testing.assert_allclose(far, [0.8, 0.2], rtol=1e-5)
    near = weights(make("fedhv-moving", scope="own", decay=1.0, factor=1 + 1e-9), (1.0, 4.0), (0.5, 4.0))
    np.testing.assert_allclose(near, [0, 1], atol=1e-6)


def test_minmax_of_preferences_is_tchebycheff():
    """max λᵢfᵢ, not max fᵢ: the preferred task wins although its loss is smaller."""
    for name, knob in (("stch", {"mu": 1e-5}), ("afl", {"rate": 1e4})):
        np.testing.assert_allclose(weights(make(name, preferences=(3.0, 1.0), **knob), (0.5, 1.0)), [1, 0], atol=1e-6)


# --- rules as methods -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RULES)
def test_a_rule_asks_exactly_what_fedhv_asks(name):
    requests = []
    for method in (make(name), FedHV(reference=(9.0, 9.0))):
        conversation = method.conversation(method.start(MODEL, 2))
        requests.append(next(conversation))
        with pytest.raises(StopIteration) as end:
            conversation.send(
                TrainReplies(COHORT, Layout.of(Point(), 2), torch.ones(4), torch.tensor([[1.0, 2.0], [1.0, 2.0]]))
            )
        assert end.value.value.model.tolist() == [1.0] * 4
        assert end.value.value.record["report"] == [1.0, 2.0]
    layout = Layout.of(Point(), 2)
    assert isinstance(requests[0], Train)
    assert requests[0].down(layout) == requests[1].down(layout) == {"model": 4, "weights": 2}
    assert requests[0].up(layout) == requests[1].up(layout) == {"update": 4, "report": 2}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_found_by_its_name_and_is_not_among_the_papers_four(name):
    assert method_class(name).name == name
    assert issubclass(method_class(name), LossRule)
    assert name not in METHODS


@pytest.mark.parametrize("name", RULES)
def test_the_parts_go_around_every_rule(name):
    reports = torch.tensor([[1.0, 2.0], [1.0, 2.0], [1e6, 2.0]])
    replies = TrainReplies(COHORT, Layout.of(Point(), 2), torch.ones(4), reports)
    method = make(name, aggregate="median", weight_cap=0.6, smoothing=0.5)
    state = drive(method.conversation(method.start(MODEL, 2)), lambda request: replies)
    assert state.record["report"] == [1.0, 2.0]
    assert float(state.weights.max()) <= 0.55 + 1e-6


@pytest.mark.parametrize("name", [*RULES, "fedhv"])
def test_a_state_can_be_saved_and_goes_on(name):
    """All that a rule remembers is in the state: rounds continued from it are rounds of the whole."""
    method = fitting(name, 2)
    rounds = [(1.0, 2.0), (0.8, 1.5), (0.6, 1.4)]
    *_, middle, end = play(method, *rounds)
    copied = State(middle.model.clone(), middle.weights.clone(), {k: v.clone() for k, v in middle.memory.items()})
    assert torch.equal(play(method, rounds[-1], state=copied)[-1].weights, end.weights)


def test_an_unknown_name_names_the_nearest_rule():
    with pytest.raises(InputError, match="Did you mean 'geometric'"):
        make_method("geometrc")


WRONG = [
    ("stch", {"mu": 0.0}, "`mu` should be positive"),
    ("afl", {"rate": -1.0}, "`rate` should be positive"),
    ("dwa", {"temperature": 0.0}, "`temperature` should be positive"),
    ("famo", {"decay": -1.0}, "`decay` should not be negative"),
    ("power", {"power": math.inf}, "`power` should be finite"),
    ("fedhv-moving", {"factor": 1.0}, "`factor` should be more than 1"),
    ("fedhv-moving", {"decay": 1.5}, r"`decay` should be in \[0, 1\]"),
    ("fedhv-moving", {"scope": "both"}, "`scope` should be 'common' or 'own'"),
    ("fedhv-moving", {"scope": "own"}, "needs a `decay` above 0"),
    ("fixed", {"preferences": (1.0, -1.0)}, "`preferences` should be finite, not negative"),
    ("fixed", {"preferences": (0.0, 0.0)}, "not all zero"),
    ("fedhv", {"preferences": "all"}, "`preferences` should be one number per task"),
    ("fedhv", {"preferences": (1.0, math.nan)}, "`preferences` should be finite"),
]


@pytest.mark.parametrize(("name", "parameters", "said"), WRONG)
def test_wrong_hyper_parameters_are_named_in_one_line(name, parameters, said):
    with pytest.raises(InputError, match=said) as caught:
        make_method(name, parameters)
    assert "\n" not in str(caught.value)


def test_preferences_of_another_number_of_tasks_are_refused():
    with pytest.raises(InputError, match=r"one number per task \(2\)\. Found 3"):
        make_method("fixed", {"preferences": (1.0, 1.0, 1.0)}).check(2)
