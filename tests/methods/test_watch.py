"""The reference watch: what is too small is recorded and shown; stop stops, recalibrate raises and goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from observers import Watch
from problems import Point
from runs_on_disk import contents

from fedhv import FedHV, FedHVError, InputError, run
from fedhv.methods.base import State, drive
from fedhv.methods.parts.watch import Breach, ReferenceBreached, breaches
from fedhv.problem.parameters import Layout
from fedhv.protocol.request import Refusal
from fedhv.protocol.requests import TrainReplies
from fedhv.report.progress import incidents
from fedhv.simulation.record import Round
from fedhv.support.errors import Interrupted
from fedhv.theory.diagnosis import diagnose

LOW = (2.25, 2.35)
"""Below what an untrained model of ten classes loses (2.30), for the first task alone."""

LAYOUT = Layout.of(Point(), 2)


def played(method: FedHV, *rounds, state: State | None = None) -> State:
    """States after rounds with these reports."""
    m = len(rounds[0])
    state = state or State(torch.zeros(2), torch.full((m,), 1 / m))
    for losses in rounds:
        answer = TrainReplies(None, LAYOUT, torch.zeros(2), torch.tensor([losses]))  # type: ignore[arg-type]
        state = drive(method.conversation(state), lambda request, answer=answer: answer)
    return state


def test_the_gravest_of_the_three_is_named():
    slacks = torch.tensor([0.5, 0.05, 1e-9, -0.1], dtype=torch.float64)
    found = breaches(slacks, floor=1e-6, threshold=0.1)
    assert [(each.task, each.event) for each in found] == [(1, "low slack"), (2, "floored"), (3, "above reference")]
    assert breaches(slacks[:1], 1e-6, 0.1) == []


def test_nothing_is_recorded_while_nothing_is_too_small():
    record = played(FedHV(reference=(3.0, 3.0)), (1.0, 2.0)).record
    assert set(record) == {"report", "slack", "floored"}


def test_warn_records_and_goes_on_with_the_floored_slack():
    state = played(FedHV(reference=(1.0, 3.0)), (2.0, 1.0))
    assert state.record["watch"] == [{"task": 0, "slack": -1.0, "event": "above reference"}]
    assert state.record["floored"] == 1
    assert state.weights[0] > 0.999
    assert state.memory == {}


def test_stop_raises_before_the_round_is_taken():
    with pytest.raises(ReferenceBreached, match="too close to their reference"):
        played(FedHV(reference=(1.0, 3.0), watch="stop"), (2.0, 1.0))


def test_recalibrate_raises_the_reference_by_the_rule_that_gave_it():
    method = FedHV(reference=(1.0, 3.0), watch="recalibrate", watch_margin=0.25)
    state = played(method, (2.0, 2.9))
    assert state.record["raised"] == pytest.approx([2.25, 3.15])  # the margin above the maximum, task by task
    assert state.memory["reference"].tolist() == pytest.approx([2.25, 3.15])
    inverse = torch.tensor([1 / 0.25, 1 / 0.25])
    torch.testing.assert_close(state.weights, inverse / inverse.sum())
    later = played(method, (1.5, 2.0), state=state)  # it stays raised, and nothing is too small any more
    assert "watch" not in later.record
    assert later.record["slack"] == pytest.approx([0.75, 1.15])
    assert played(method, (2.2, 1.0), state=later).record.get("raised") is None
    higher = played(method, (3.0, 1.0), state=later)
    assert higher.record["raised"] == pytest.approx([3.25, 3.15])  # never lowered


def test_a_remembered_reference_of_another_shape_is_refused():
    state = State(torch.zeros(2), torch.tensor([0.5, 0.5]), {"reference": torch.ones(3, dtype=torch.float64)})
    with pytest.raises(InputError, match="reference should have 2 values"):
        played(FedHV(reference=(3.0, 3.0), watch="recalibrate"), (1.0, 1.0), state=state)


@pytest.mark.parametrize("wrong", [{"watch": "pray"}, {"watch_slack": -1.0}, {"watch_margin": 0.0}])
def test_policies_that_mean_nothing_are_refused(wrong):
    with pytest.raises(InputError, match=f"`{next(iter(wrong))}`"):
        FedHV(**wrong)


OPTIONS = {"engine": "sequential", "override": ["training.local_steps=1"], "reference": list(LOW)}


def test_a_recalibrated_run_is_resumed_bit_for_bit(tmp_path):
    method = FedHV(watch="recalibrate", local_lr=0.3, server_lr=1.2)
    whole = run("digits", method, rounds=5, out=tmp_path / "whole", **OPTIONS)
    with pytest.raises(Interrupted):
        run("digits", method, rounds=5, out=tmp_path / "broken", observer=Watch(2), **OPTIONS)
    run("digits", method, rounds=5, out=tmp_path / "broken", resume=True, **OPTIONS)
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")
    raised = whole.summary.watch.raised
    assert raised[0].round == 1
    assert raised[0].reference[0] > LOW[0]
    assert whole.summary.watch.lowest_slack < 0
    assert whole.summary.reference == LOW  # what the run was given stays in its summary
    lines = whole.summary.incidents
    assert "the reference was too low" in lines[0]
    assert "raised in round 1" in lines[0]


def test_a_stopped_run_names_the_task_the_round_and_what_to_do(tmp_path):
    with pytest.raises(FedHVError, match=r"fedhv seed 0, after round 0: .*larger margin.*'clear' above reference") as e:
        run("digits", FedHV(watch="stop"), rounds=3, out=tmp_path / "r", **OPTIONS)
    assert "\n" not in str(e.value)
    assert not (tmp_path / "r" / "summary.json").exists()


def test_the_progress_line_says_what_went_wrong():
    calm = Round(number=1, weights=(0.5, 0.5), downlink_bytes=8, uplink_bytes=8, exchanges=1)
    assert incidents(calm) == ""
    lost = replace(calm, refused=(Refusal(0, "no answer"), Refusal(1, "no answer")))
    assert incidents(lost) == "  2 left out"
    bad = replace(lost, attempts=3, watch=(Breach(0, -0.25, "above reference"),), raised=(2.0, 2.0))
    assert incidents(bad) == "  2 left out  attempt 3  ! above reference, slack -0.25, reference raised"


def test_progress_on_a_run_shows_the_watch(command, tmp_path):
    (tmp_path / "low.toml").write_text(f"values = {list(LOW)}\n")
    done = command("run", "digits", "--rounds", 2, "--out", "r", "--reference", "low.toml", "--set",
                   "training.local_steps=1", "--engine", "sequential")  # fmt: skip
    assert done.code == 0
    assert "above reference, slack" in done.err
    assert "the reference was too low in" in done.out


def test_a_diagnosis_says_what_the_watch_saw(tmp_path, setting_file):
    method = FedHV(watch="recalibrate", report=2)
    run(str(setting_file), method, rounds=3, out=tmp_path / "r", reference=[1.0, 1.2], engine="sequential")
    notes = " ".join(diagnose(tmp_path / "r", checkpoints=("start",)).notes)
    assert "The watch found" in notes
    assert "The reference was raised in round 1" in notes
