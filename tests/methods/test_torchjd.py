"""TorchJD's rules as methods: on task updates, on a Gram matrix and on reports."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import Point

from fedhv import FSMGDA, FedHVError, InputError, LocalTraining, run
from fedhv.methods import drive, make_method, torchjd_classes
from fedhv.methods.minnorm import min_norm_weights
from fedhv.methods.preferences import with_preferences
from fedhv.methods.torchjd import OnGram, OnReports, OnUpdates
from fedhv.methods.torchjd_classes import torchjd_method, torchjd_names
from fedhv.problem.parameters import Layout
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.requests import TaskUpdateReplies, TrainReplies

aggregation = pytest.importorskip("torchjd.aggregation")

LAYOUT = Layout.of(Point(), 2)
REQUIRED = {"c": 0.4, "alpha": 1.0, "n_byzantine": 0, "trim_number": 0, "lambda_": 1.0, "theta": 1.0, "mu": 0.5}
NAMES = torchjd_names()


def make(name, **more):
    cls = torchjd_method(name)
    given = {key: value for key, value in REQUIRED.items() if key in cls.options}
    return make_method(name, given | more)


def ready(name):
    """The method, unless TorchJD lacks a solver for it here."""
    method = make(name)
    try:
        method.check(2)
    except InputError as error:
        pytest.skip(str(error))
    return method


def updates(U, round=0):
    cohort = Cohort([0, 1], round=round, seed=0, local=LocalTraining(steps=5))
    return TaskUpdateReplies(cohort, LAYOUT, torch.as_tensor(U, dtype=torch.float32))


def step(method, U, round=0):
    start = method.start(torch.zeros(LAYOUT.d), 2)
    return drive(method.conversation(start), lambda request: updates(U, round))


GRADIENTS = [[1.0, 0.5, 1.0, 0.0], [-0.5, 2.0, 0.0, 1.0]]
"""Two task updates of the test's network: two shared parameters, and a head of one for each task."""


@pytest.mark.parametrize("name", [name for name in NAMES if issubclass(torchjd_method(name), OnUpdates)])
def test_an_aggregator_takes_a_step_that_can_be_repeated(name):
    after = step(ready(name), GRADIENTS)
    assert bool(after.model.isfinite().all())
    assert after.weights.shape == (2,)
    assert float(after.model.norm()) > 0
    again = step(ready(name), GRADIENTS)
    assert torch.equal(after.model, again.model)  # also those that draw: the same round, the same draws


@given(st.lists(st.floats(-2, 2), min_size=8, max_size=8))
@settings(max_examples=50)
def test_our_min_norm_and_their_mgda_agree(entries):
    J = np.array(entries).reshape(2, 4)
    G = J @ J.T
    theirs = aggregation.MGDAWeighting(epsilon=1e-9, max_iters=5000)(torch.from_numpy(G)).numpy()
    ours = min_norm_weights(G)
    assert ours @ G @ ours == pytest.approx(theirs @ G @ theirs, rel=1e-6, abs=1e-9)


def test_their_mgda_as_a_method_is_fsmgda():
    ours, theirs = step(FSMGDA(), GRADIENTS), step(make("torchjd:MGDA", epsilon=1e-9, max_iters=5000), GRADIENTS)
    torch.testing.assert_close(theirs.weights, ours.weights, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(theirs.model, ours.model, rtol=1e-4, atol=1e-5)


def test_the_mean_of_the_updates_by_hand():
    U = torch.tensor(GRADIENTS)
    torch.testing.assert_close(step(make("torchjd:Mean"), GRADIENTS).model, U.mean(dim=0))
    torch.testing.assert_close(step(make("torchjd:Sum", server_lr=0.5), GRADIENTS).model, U.mean(dim=0))
    fixed = step(make("torchjd:Constant", preferences=(3.0, 1.0)), GRADIENTS)
    torch.testing.assert_close(fixed.model, 0.75 * U[0] + 0.25 * U[1])


def test_a_schedule_of_the_local_rate_does_not_change_the_gradients_that_an_aggregator_receives():
    """UPGrad takes gradients below its `norm_eps` for zeros: with the method's own rate it would be a mean here."""
    opposed = [[1.0, 0.5, 1.0, 0.0], [-2.0, 0.5, 0.0, 1.0]]
    full, method = updates(opposed), make("torchjd:UPGrad")
    late = replace(full.cohort, local=replace(full.cohort.local, learning_rate=1e-4 * full.cohort.local.learning_rate))
    decayed = TaskUpdateReplies(late, LAYOUT, 1e-4 * torch.tensor(opposed))
    start = method.start(torch.zeros(LAYOUT.d), 2)
    found, expected = (drive(method.conversation(start), lambda _, r=r: r).weights for r in (decayed, full))
    torch.testing.assert_close(found, expected)


def test_an_aggregator_without_weights_moves_heads_by_the_mean():
    after = step(make("torchjd:TrimmedMean"), GRADIENTS)  # nothing is trimmed: the mean
    torch.testing.assert_close(after.model, torch.tensor(GRADIENTS).mean(dim=0))
    direction = step(make("torchjd:ConFIG"), GRADIENTS).model[:2].double()
    expected = -aggregation.ConFIG()(-torch.tensor(GRADIENTS, dtype=torch.float64)[:, :2])
    torch.testing.assert_close(direction, expected, rtol=1e-5, atol=1e-6)


def test_a_task_that_nobody_has_is_no_row_and_has_no_weight():
    U = [[1.0, 0.5, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    found = replace(updates(U), shares=torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    for name in ("torchjd:MGDA", "torchjd:Mean", "torchjd:ConFIG", "torchjd:Constant"):
        method = make(name)
        after = drive(method.conversation(method.start(torch.zeros(4), 2)), lambda request: found)
        assert after.weights.tolist() == [1.0, 0.0]
        torch.testing.assert_close(after.model, torch.tensor(U[0]))
    preferring = make("torchjd:AlignedMTLWeighting", preferences=(3.0, 1.0))
    w = preferring._weights(np.diag([4.0, 0.0]), found, np.array([0.5, 0.5]))
    assert w.tolist() == [1.0, 0.0]


def test_a_rule_that_draws_has_its_own_stream_in_every_round():
    first, second = (step(make("torchjd:Random"), GRADIENTS, round=t).weights for t in (0, 1))
    assert not torch.equal(first, second)
    state = torch.random.get_rng_state()
    step(make("torchjd:GradDrop"), GRADIENTS)
    assert torch.equal(torch.random.get_rng_state(), state)  # nobody else's generator has moved


# --- on a Gram matrix -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in NAMES if issubclass(torchjd_method(name), OnGram)])
def test_a_weighting_gives_weights_on_the_simplex(name):
    method = ready(name)
    for gram in ([[4.0, 1.0], [1.0, 1.0]], [[1.0, -0.5], [-0.5, 1e-3]], [[1e-12, 0.0], [0.0, 1e-12]]):
        w = method.descend_weights(np.array(gram), np.array([0.5, 0.5]))
        assert (w >= 0).all()
        assert w.sum() == pytest.approx(1)


def test_a_gram_matrix_that_says_nothing_keeps_the_weights():
    method = make("torchjd:MGDAWeighting")
    before = np.array([0.3, 0.7])
    for gram in ([[0.0, 0.0], [0.0, 0.0]], [[np.nan, 0.0], [0.0, 1.0]], [[-1.0, 0.0], [0.0, -1.0]]):
        assert method.descend_weights(np.array(gram), before).tolist() == [0.3, 0.7]


def test_a_weighting_that_needs_more_tasks_than_a_cohort_has_stops_the_run_in_one_line():
    """Three tasks, as many as the rule needs; the cohort has labels of two."""
    terms = replace(updates(GRADIENTS), shares=torch.tensor([[1.0, 1.0, 0.0]]))
    with pytest.raises(FedHVError, match=r"TorchJD failed: .*at least 3 rows[^\n]*$"):
        make("torchjd:KrumWeighting")._weights(np.diag([4.0, 1.0, 0.0]), terms, np.full(3, 1 / 3))


def test_their_mgda_weighting_by_hand():
    method = make("torchjd:MGDAWeighting", epsilon=1e-9, max_iters=5000)
    w = method.descend_weights(np.diag([4.0, 1.0]), np.array([0.5, 0.5]))
    np.testing.assert_allclose(w, [0.2, 0.8], rtol=1e-4)
    assert "iterations" not in [
        f for f in type(method).__dataclass_fields__ if type(method).__dataclass_fields__[f].init
    ]


# --- on reports -------------------------------------------------------------------------------------------


def weights(method, losses):
    replies = TrainReplies(updates(GRADIENTS).cohort, LAYOUT, torch.zeros(4), torch.tensor([losses]))
    return drive(method.conversation(method.start(torch.zeros(4), 2)), lambda request: replies).weights.tolist()


def test_scalarizers_agree_with_our_own_rules():
    assert weights(make("torchjd:GeometricMean"), [1.0, 3.0]) == pytest.approx([0.75, 0.25])
    for preferences in (None, (3.0, 1.0)):
        theirs = weights(make("torchjd:STCH", mu=0.5, preferences=preferences), [1.0, 2.0])
        assert theirs == pytest.approx(
            weights(make_method("stch", {"mu": 0.5, "preferences": preferences}), [1.0, 2.0])
        )


@pytest.mark.parametrize("name", [name for name in NAMES if issubclass(torchjd_method(name), OnReports)])
def test_a_scalarizer_gives_weights_of_size_one(name):
    for losses in ([1.0, 2.0], [0.0, 1.0], [0.0, 0.0]):
        w = np.array(weights(ready(name), losses))
        assert np.abs(w).sum() == pytest.approx(1, abs=1e-5)


def test_a_scalarizer_follows_preferences_or_takes_none():
    tasks = ["a", "b"]
    for name in [name for name in NAMES if issubclass(torchjd_method(name), OnReports)]:
        if torchjd_method(name).vector is None:
            with pytest.raises(InputError, match="takes no preferences"):
                with_preferences(make(name), {"a": 3.0, "b": 1.0}, tasks)
            with pytest.raises(InputError, match="'preferences'"):
                make(name, preferences=(3.0, 1.0))
        else:
            preferring = with_preferences(make(name), {"a": 3.0, "b": 1.0}, tasks)
            assert weights(preferring, [1.0, 2.0])[0] > weights(make(name), [1.0, 2.0])[0]


# --- as methods -------------------------------------------------------------------------------------------


def test_there_are_rules_of_every_kind():
    kinds = [torchjd_method(name) for name in NAMES]
    assert sum(issubclass(kind, OnUpdates) for kind in kinds) >= 12
    assert sum(issubclass(kind, OnGram) for kind in kinds) >= 6
    assert sum(issubclass(kind, OnReports) for kind in kinds) >= 4


@pytest.mark.parametrize("name", ["torchjd:IMTLG", "torchjd:MGDAWeighting", "torchjd:STCH"])
def test_a_rule_runs_and_its_communication_is_counted(name, tmp_path):
    changes = [f"methods.{name}.mu=0.5"] if name.endswith("STCH") else []
    result = run("digits", name, rounds=2, override=["training.local_steps=1", *changes], engine="sequential",
                 out=tmp_path / "r")  # fmt: skip
    like = {"torchjd:IMTLG": "fsmgda", "torchjd:MGDAWeighting": "fedcmoo", "torchjd:STCH": "fixed"}[name]
    other = run("digits", like, rounds=2, override=["training.local_steps=1"], engine="sequential")
    assert result.communication == other.communication
    assert result.method == name


def test_a_method_can_be_sent_to_another_process():
    for name in ("torchjd:IMTLG", "torchjd:CAGradWeighting", "torchjd:STCH"):
        method = make(name, local_lr=0.25)
        again = pickle.loads(pickle.dumps(method))
        assert again == method
        assert type(again) is type(method)


@pytest.mark.parametrize(
    ("name", "parameters", "said"),
    [
        ("torchjd:UPgrad", {}, "Did you mean 'UPGrad'"),
        ("torchjd:FAMO", {}, "it keeps a state between calls that a checkpoint could not hold. Use the method 'famo'"),
        ("torchjd:NashMTL", {}, "it keeps a state"),
        ("torchjd:PCGradWeighting", {}, "use the aggregator"),
        ("torchjd:STCH", {}, r"no default for `mu`\. Give a value, for example with --set methods\.torchjd:STCH\.mu"),
        ("torchjd:MGDA", {"epsilo": 1.0}, "Did you mean 'epsilon'"),
        ("torchjd:ConFIG", {"preferences": (-1.0, 1.0)}, "not negative"),
    ],
)
def test_mistakes_are_named_in_one_line(name, parameters, said):
    with pytest.raises(InputError, match=said) as caught:
        make_method(name, parameters)
    assert "\n" not in str(caught.value)


def test_a_constructors_own_refusal_is_an_input_error():
    with pytest.raises(InputError, match=r"torchjd:STCH.*could not be made.*mu"):
        make_method("torchjd:STCH", {"mu": -1.0}).check(2)


def test_a_rule_that_needs_more_tasks_is_refused_before_a_run():
    with pytest.raises(InputError, match=r"torchjd:Krum.*could not be made.*at least 3 rows"):
        make("torchjd:Krum").check(2)
    make("torchjd:Krum").check(3)


def test_without_torchjd_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchjd", None)
    torchjd_classes._rules.cache_clear()
    try:
        assert torchjd_names() == []
        with pytest.raises(InputError, match=r"pip install 'fedhv\[torchjd\]'"):
            make_method("torchjd:UPGrad")
    finally:
        torchjd_classes._rules.cache_clear()
