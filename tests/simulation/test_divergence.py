"""A run whose numbers run away stops, says where, and keeps its last good state."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from observers import Watch
from problems import everything_random
from runs_on_disk import records

from fedhv import FedHVError, Method, State, StudyFailed, Train, compare, run
from fedhv.engines import Sequential
from fedhv.runs.checkpoint import load_checkpoint
from fedhv.simulation.divergence import check_step
from fedhv.simulation.observer import Observer
from fedhv.simulation.rounds import initial_state
from fedhv.support.errors import Diverged, Interrupted


@dataclass(frozen=True, kw_only=True)
class Leap(Method):
    """Averages as usual, and after some rounds multiplies the model."""

    name = "leap"
    after: int = 3
    by: float = 1e4

    def round(self, state):
        replies = yield Train(state.model)
        count = int(state.memory.get("count", torch.tensor(0))) + 1
        model = state.model + replies.mean_update
        if count > self.after:
            model = model * self.by
        return State(model, state.weights, {"count": torch.tensor(count)})


OPTIONS = {"rounds": 6, "engine": "sequential", "override": ["evaluation.every=1", "training.local_steps=1"]}


def test_a_model_that_is_not_finite_stops_the_run_at_the_last_good_round(tmp_path):
    with pytest.raises(
        Diverged,
        match=r"leap seed 0, after round 3: After round 4 the model is no longer finite: the run has diverged\. "
        r"Lower .*local_lr.*task '(clear|faint)' has the largest test loss, .*The state after round 3 is kept\.",
    ) as caught:
        run("digits", Leap(by=float("inf")), out=tmp_path / "r", **OPTIONS)
    assert "\n" not in str(caught.value)
    assert [record["round"] for record in records(tmp_path / "r")] == [1, 2, 3]
    assert not (tmp_path / "r" / "summary.json").exists()


ANY_STEP = {**OPTIONS, "override": [*OPTIONS["override"], "server.max_jump=inf"]}


@pytest.mark.parametrize("after", [0, 3])
def test_a_leap_is_found_before_it_is_checkpointed_though_no_round_is_evaluated(after, tmp_path):
    override = [*(each for each in OPTIONS["override"] if not each.startswith("evaluation")), "evaluation.every=0"]
    options = {**OPTIONS, "override": override}
    with pytest.raises(Diverged, match=rf"Round {after + 1} would move the model by .*more than 30 times"):
        run("digits", Leap(after=after), out=tmp_path / "r", **options)
    assert len(records(tmp_path / "r")) == after
    with pytest.raises(Diverged, match=rf"Round {after + 1} would move"):
        run("digits", Leap(after=after), out=tmp_path / "r", resume=True, **options)


def test_the_client_that_sent_the_leap_is_named(random_problem):
    changes = ["faults.absurd=0.2", "faults.scale=1e5", "training.local_steps=1", "training.batch_size=4"]
    changes += ["federation.participants=5", "evaluation.every=0"]
    with pytest.raises(Diverged, match=r"Client \d sent an update of norm .*; the cohort's median is"):
        run(random_problem, "uniform", rounds=20, engine="sequential", override=changes)


def test_a_long_first_step_from_a_zero_model_is_none_of_our_business():
    layout = Sequential(everything_random()).layout
    zero = torch.zeros(layout.d)
    check_step(layout, zero, 5.0, largest=0.0, factor=30.0, number=1, norms={})
    model = zero.clone()
    model[0] = 1.0
    with pytest.raises(Diverged):
        check_step(layout, model, 500.0, largest=0.0, factor=30.0, number=1, norms={})
    check_step(layout, model, 500.0, largest=100.0, factor=30.0, number=2, norms={})
    check_step(layout, 1e4 * model, 500.0, largest=1.0, factor=30.0, number=2, norms={})


def test_an_exploding_loss_stops_the_run_and_names_task_round_and_factor(tmp_path):
    with pytest.raises(
        Diverged,
        match=r"After round 4 the test loss of task '(clear|faint)' is .*, more than 1000 times "
        r"\(`evaluation.explosion`\).*diverged\. Lower .*The state after round 3 is kept",
    ):
        run("digits", Leap(), out=tmp_path / "r", **ANY_STEP)
    assert len(records(tmp_path / "r")) == 3
    # resuming neither rolls back nor skips: it meets the same end at the same round
    with pytest.raises(Diverged, match="After round 4 the test loss"):
        run("digits", Leap(), out=tmp_path / "r", resume=True, **ANY_STEP)
    assert len(records(tmp_path / "r")) == 3


def test_the_checkpoint_of_a_diverged_run_is_its_last_good_state(tmp_path, random_problem):
    changes = ["evaluation.every=1", "training.local_steps=1", "training.batch_size=4"]
    with pytest.raises(FedHVError):
        run(random_problem, Leap(by=1e6), rounds=6, out=tmp_path / "r", engine="sequential", override=changes)
    good = run(random_problem, Leap(by=1e6), rounds=3, engine="sequential", override=changes)
    start = initial_state(Sequential(random_problem), Leap(), 0)
    checkpoint, _ = load_checkpoint(tmp_path / "r", start)
    assert checkpoint.round == 3
    state = Sequential(random_problem).layout.unflatten(checkpoint.state.model)
    assert all(torch.equal(good.state_dict[name], value) for name, value in state.items())


def test_explosion_can_be_switched_off():
    """The very run that the default stops goes on to its end, however large its loss."""
    options, method = {**ANY_STEP, "rounds": 4}, Leap(by=2e3)
    with pytest.raises(Diverged, match=r"After round 4 the test loss .* more than 1000 times"):
        run("digits", method, **options)
    options["override"] = [*ANY_STEP["override"], "evaluation.explosion=inf"]
    first, *_, last = run("digits", method, **options).history
    assert last["round"] == 4
    assert largest_loss(last) > 1000 * largest_loss(first)


def largest_loss(record):
    return max(task["loss"] for task in record["evaluation"]["tasks"])


def test_a_resumed_run_is_held_against_the_first_evaluation_of_all(tmp_path):
    """Not against the first one after it was resumed, which is large already."""
    options = {**OPTIONS, "rounds": 5, "override": [*OPTIONS["override"], "evaluation.explosion=50"]}
    method = Leap(after=2, by=2)
    with pytest.raises(Diverged) as whole:
        run("digits", method, out=tmp_path / "whole", **options)
    done = len(records(tmp_path / "whole"))
    with pytest.raises(Interrupted):
        run("digits", method, out=tmp_path / "broken", observer=Watch(done), **options)
    with pytest.raises(Diverged) as resumed:
        run("digits", method, out=tmp_path / "broken", resume=True, **options)
    assert str(resumed.value) == str(whole.value)
    first, *_, last = records(tmp_path / "broken")
    assert 2 < last["round"] < 5
    assert largest_loss(last) > 2 * largest_loss(first)  # it had begun to run away when it was interrupted


def test_a_run_of_a_study_that_diverges_leaves_the_others_alone(tmp_path):
    with pytest.raises(StudyFailed, match=r"leap seed 0, after round 3: .*other runs \(1\) are finished"):
        compare("digits", [Leap(), "uniform"], [0], out=tmp_path, jobs=1, **OPTIONS)
    assert (tmp_path / "uniform-seed0" / "summary.json").exists()


def test_a_run_of_a_stack_that_diverges_is_named_at_once_and_shown_no_longer(tmp_path):
    class Notes(Observer):
        def __init__(self):
            self.seen = []

        def message(self, text):
            self.seen.append(text)

        def runs(self, states):
            self.seen.append({label: done for label, done, _, _ in states})

    notes, options = Notes(), {**OPTIONS, "engine": "stacked"}
    with pytest.raises(StudyFailed):
        compare("digits", [Leap(), "uniform"], [0], out=tmp_path, observer=notes, **options)
    (when,) = [i for i, text in enumerate(notes.seen) if str(text).startswith("leap seed 0, after round 3: ")]
    assert notes.seen[when - 1].keys() == {"leap seed 0", "uniform seed 0"}
    assert [states.keys() for states in notes.seen[when + 1 :]] == [{"uniform seed 0"}] * (OPTIONS["rounds"] - 3)
