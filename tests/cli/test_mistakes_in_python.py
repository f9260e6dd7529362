"""What people give the Python interface by mistake, and what it tells them unasked."""

import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from problems import Small, quadratic

import fedhv

X, Y = np.zeros((4, 3), np.float32), np.array([0, 1, 0, 1])


def own(**changes):
    given = {"tasks": [fedhv.classification("kind", 2)], "clients": [(X, [Y])], "test": (X, [Y])}
    return fedhv.Problem.from_clients(Small, **(given | changes))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fedhv.run(quadratic(), fedhv.FedHV), r"Found <class .*FedHV'>\. Write FedHV\(\)\.$"),
        (lambda: fedhv.run(quadratic(), 3), r"A method should be a name or an object such as FedHV\(\)\. Found 3\.$"),
        (lambda: fedhv.run(None), r"a setting's name or file, a Setting or a Problem\. Found None\.$"),
        (lambda: fedhv.run(quadratic(), override="a.b=1"), r"`override` should be a list .* Found 'a\.b=1'\.$"),
        (lambda: fedhv.run(quadratic(), override={"a.b": 1}), r"`override` should be a list"),
        (lambda: fedhv.compare(quadratic(), seeds=0, out="x"), r"`seeds` should be a list\. Found 0\.$"),
        (lambda: fedhv.compare(quadratic(), "fedhv", out="x"), r"`methods` should be a list\. Found 'fedhv'\.$"),
        (
            lambda: fedhv.compare(quadratic(), [fedhv.FedHV(local_lr=0.1), fedhv.FedHV(local_lr=0.2)], out="x"),
            r"none twice\. Found \['fedhv', 'fedhv'\]\. Variants of a method need one study each\.$",
        ),
        (lambda: fedhv.classification("kind", "4"), r"Task 'kind' should have at least 2 classes\. Found '4'\.$"),
        (lambda: fedhv.classification("kind", 1), r"at least 2 classes\. Found 1\.$"),
        (lambda: fedhv.multilabel("marks", 0), r"at least 1 label\. Found 0\.$"),
        (lambda: own(tasks=["kind"]), r"should be made by classification, .* Found 'kind'\.$"),
        (lambda: own(augment=lambda x: x), r"^`augment` should .* with `draw` and `apply`\. Found a function\.$"),
        (
            lambda: own(clients=[X]),
            r"client 0's examples should be inputs and a list of targets, .* Found a ndarray\.$",
        ),
        (lambda: own(clients=[(X, Y)]), r"the targets of client 0's examples should be a list, .* Found a ndarray\.$"),
        (lambda: own(clients=[(X, [Y], 3)]), r"client 0's examples .* Found a tuple of 3\.$"),
        (lambda: fedhv.run(quadratic(), "uniform", engine=None), r"^Unknown engine 'None'\. Known: auto, "),
        (
            lambda: fedhv.run(quadratic(), reference=3.0),
            r"^A reference should be a file, a name, or a loss for each of .* Found 3\.0\.$",
        ),
        (
            lambda: fedhv.run(quadratic(), reference={"left": 3.0, "wrong": 2.0}),
            r"or a loss for each of left, right\. Found \{'left': 3\.0, 'wrong': 2\.0\}\.$",
        ),
        (lambda: fedhv.compare(quadratic(), local_lrs=0.1), r"^`local_lrs` should be a list\. Found 0\.1\.$"),
        (lambda: fedhv.tune(quadratic(), trials="9"), r"^`trials` should be at least 1\. Found '9'\.$"),
        (lambda: fedhv.tune(quadratic(), trials=1.5), r"^`trials` should be at least 1\. Found 1\.5\.$"),
        (
            lambda: fedhv.tune(quadratic(), trials=3, finalists=4),
            r"^`finalists` should be from 1 to 3, the number of trials\. Found 4\.$",
        ),
        (
            lambda: fedhv.tune(quadratic(), finalists=True),
            r"^`finalists` should be from 1 to 9, the number of trials\. Found True\.$",
        ),
        (
            lambda: fedhv.tune(quadratic(), ranges=[1]),
            r"^`ranges` should be a dict of \(low, high\) by name\. Found \[1",
        ),
        (
            lambda: fedhv.tune(quadratic(), ranges={"local_lr": 0.1}),
            r"^The range of `local_lr` should be two positive numbers, the smaller first\. Found 0\.1\.$",
        ),
        (
            lambda: fedhv.tune(quadratic(), ["fedhv-moving"], ranges={"fedhv-moving.factor": (1, 4)}),
            r"^The range of `fedhv-moving\.factor` should be two numbers above 1, the smaller first\. Found \(1, 4\)",
        ),
        (lambda: own(test={"x": X}), r"the test examples should be .* Found a dict\.$"),
    ],
)
def test_what_the_python_interface_is_given_by_mistake_is_said_in_one_line(call, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fedhv.InputError, match=said):
        call()
    assert list(tmp_path.iterdir()) == []


def test_classes_may_be_counted_by_numpy():
    assert fedhv.classification("kind", np.int64(3)).outputs == 3
    fedhv.Problem.from_clients(Small, [fedhv.classification("kind", 2)], [(X, Y[None])], (X, Y[None]))


def test_a_reference_may_name_its_tasks():
    named, listed = {"right": 30.0, "left": 40.0}, [40.0, 30.0]
    runs = [fedhv.run(quadratic(), rounds=2, reference=each, quiet=True) for each in (named, listed)]
    assert runs[0].weights == runs[1].weights


def test_python_warns_of_a_reference_that_is_too_low(tmp_path):
    low = r"fedhv seed 0: the reference was too low in 2 rounds, first in round 1, lowest slack -.* Calibrate it again"
    with pytest.warns(UserWarning, match=low):
        fedhv.run(quadratic(), rounds=2, reference=[1e-6] * len(quadratic().tasks))
    with pytest.warns(UserWarning, match=low):
        fedhv.compare(quadratic(), ["fedhv"], [0], rounds=2, reference=[1e-6] * len(quadratic().tasks), out=tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fedhv.run(quadratic(), rounds=2, reference=[1e6] * len(quadratic().tasks))


def test_a_calibration_whose_losses_run_away_gives_no_reference(tmp_path):
    with pytest.raises(fedhv.FedHVError, match=r"calibration seed 0, .* Round 2 would move the model .* or lower"):
        fedhv.run(
            quadratic(), fedhv.FedHV(local_lr=2.5), rounds=2, out=tmp_path / "run", override=["calibration.rounds=3"]
        )
    assert not (tmp_path / "run" / "reference.toml").exists()


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (lambda state, replies: state.model, r"`round` should return a fedhv\.State\. It returned a Tensor\.$"),
        (
            lambda state, replies: fedhv.State(state.model, np.ones(2)),
            r"`weights` should be a tensor of 2 numbers\. Found",
        ),
        (
            lambda state, replies: fedhv.State(state.model[:1], state.weights),
            r"`model` should be .* Found shape \(1,\)",
        ),
        (
            lambda state, replies: fedhv.State(state.model.double(), state.weights),
            r"`model` should be of float32\. Found float64; write `\.float\(\)`\.",
        ),
        (
            lambda state, replies: fedhv.State(state.model, state.weights, memory={"rounds": 1}),
            r"memory 'rounds' should be a tensor, .* Found int; write torch\.tensor\(…\)\.$",
        ),
        (
            lambda state, replies: fedhv.State(state.model, state.weights, record=None),
            r"`record` should be a dict\. Found",
        ),
        (
            lambda state, replies: fedhv.State(state.model, state.weights, record={"seen": {1, 2}}),
            r"in the State's record `seen` should be a number, text, .* found set\.$",
        ),
        (
            lambda state, replies: replies.mean_report(),
            r'replies have no reports\. Request them with Train\(…, report="all"\)\.',
        ),
    ],
)
def test_a_method_of_ones_own_that_ends_a_round_wrongly_is_told_how(ending, said):
    class Mine(fedhv.Method):
        name = "mine"

        def round(self, state):
            replies = yield fedhv.Train(state.model, state.weights)
            return ending(state, replies)

    with pytest.raises(fedhv.InputError, match=said):
        fedhv.run(quadratic(), Mine(), rounds=1)


def test_a_hyper_parameter_that_no_folder_can_record_is_named(tmp_path):
    @dataclass(frozen=True, kw_only=True)
    class Mine(fedhv.Uniform):
        rule: object = None

    with pytest.raises(
        fedhv.InputError, match=r"Method 'uniform': `rule` should be a number, .* a function has no place"
    ):
        fedhv.run(quadratic(), Mine(rule=lambda x: x), rounds=1, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_method_may_record_tensors_and_remember_its_model(tmp_path):
    class Mine(fedhv.Uniform):
        def round(self, state):
            replies = yield fedhv.Train(state.model, report="all")
            model = state.model + replies.mean_update
            record = {"report": replies.mean_report(), "norm": np.float32(2.5)}
            return fedhv.State(model, state.weights, memory={"old": state.model, "new": model}, record=record)

    made = fedhv.run(quadratic(), Mine(), rounds=2, out=tmp_path / "run")
    assert made.history[0]["norm"] == 2.5
    assert len(made.rounds[0].report) == 2


def test_a_method_of_ones_own_that_yields_nothing_is_told_so():
    class Mine(fedhv.Method):
        name = "mine"

        def round(self, state):
            return state

    with pytest.raises(fedhv.InputError, match=r"Method 'mine': `round` should yield requests, .* returned a State\.$"):
        fedhv.run(quadratic(), Mine(), rounds=1)
