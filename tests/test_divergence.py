"""A run whose numbers run away stops, says where, and keeps its last good state."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from fedhv import FedHVError, LocalTraining, Method, State, Train, run
from fedhv.checkpoint import load_checkpoint
from fedhv.engines import Sequential
from fedhv.errors import Diverged
from fedhv.history import read_history
from fedhv.simulation import Plan, initial_state, rounds, simulate, simulate_together
from fedhv.study import StudyFailed, compare


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
    assert [record["round"] for record in read_history(tmp_path / "r")] == [1, 2, 3]
    assert not (tmp_path / "r" / "summary.json").exists()


def test_an_exploding_loss_stops_the_run_and_names_task_round_and_factor(tmp_path):
    with pytest.raises(
        Diverged,
        match=r"After round 4 the test loss of task '(clear|faint)' is .*, more than 1000 times "
        r"\(`evaluation.explosion`\).*diverged\. Lower .*The state after round 3 is kept",
    ):
        run("digits", Leap(), out=tmp_path / "r", **OPTIONS)
    assert len(read_history(tmp_path / "r")) == 3
    # resuming neither rolls back nor skips: it meets the same end at the same round
    with pytest.raises(Diverged, match="After round 4 the test loss"):
        run("digits", Leap(), out=tmp_path / "r", resume=True, **OPTIONS)
    assert len(read_history(tmp_path / "r")) == 3


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


def test_explosion_can_be_switched_off(tmp_path):
    options = {**OPTIONS, "override": [*OPTIONS["override"], "evaluation.explosion=inf"]}
    assert run("digits", Leap(by=2e3), **{**options, "rounds": 4}).mean_loss > 1e3


def test_a_resumed_run_is_held_against_its_first_evaluation(random_problem):
    plan = Plan(
        rounds=5,
        participants=2,
        local=LocalTraining(steps=1, batch_size=4, learning_rate=0.1),
        evaluate_every=1,
        explosion=50.0,
    )
    engine = Sequential(random_problem)
    whole = list(simulate(engine, Leap(after=9), plan))
    again = rounds(engine.layout, len(random_problem.clients), Leap(after=9), plan, whole[2].state, 3, baseline=1e-6)
    ends = [event for _, event in simulate_together(engine, [again])]
    assert isinstance(ends[0], Diverged)  # any loss is more than 50 times a baseline of 1e-6


def test_a_run_of_a_study_that_diverges_leaves_the_others_alone(tmp_path):
    with pytest.raises(StudyFailed, match=r"leap seed 0, after round 3: .*other runs \(1\) are finished"):
        compare("digits", [Leap(), "uniform"], [0], out=tmp_path, jobs=1, **OPTIONS)
    assert (tmp_path / "uniform-seed0" / "summary.json").exists()
