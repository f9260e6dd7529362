"""Histories are read without trust: whatever is wrong with a file is a note, and what is before it is used."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedhv.report.rounds import from_summary, read_rounds
from fedhv.runs.summary import Summary
from report.studies import DIGITS, made_up, write_history


@pytest.fixture
def records():
    return made_up("fedhv", 0, DIGITS, rounds=8, done=8, every=4, local_steps=10, participants=6)


def test_a_whole_history_is_read_without_notes(tmp_path, records):
    write_history(tmp_path, records)
    read = read_rounds(tmp_path)
    assert read.notes == ()
    assert read.tasks == DIGITS
    assert read.rounds.number.tolist() == list(range(1, 9))
    assert read.evaluations.round.tolist() == [4, 8]
    np.testing.assert_array_equal(read.rounds.weights, [record["weights"] for record in records])
    np.testing.assert_array_equal(read.rounds.slack, [record["slack"] for record in records])
    last = records[-1]["evaluation"]
    assert read.evaluations.values("worst_accuracy")[-1] == last["worst_accuracy"]
    assert read.evaluations.values("loss.1")[-1] == last["tasks"][1]["loss"]


@pytest.mark.parametrize("cut", [1, 7, 60, 200])
def test_a_history_cut_in_mid_line_says_so_and_keeps_the_rounds_before(tmp_path, records, cut):
    write_history(tmp_path, records)
    path = tmp_path / "history.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    read = read_rounds(tmp_path)
    whole = cut == 1  # only the newline is missing: the round itself is all there
    assert len(read.rounds) == (8 if whole else 7)
    assert [("middle of a line" in note) for note in read.notes] == ([] if whole else [True])


def test_a_cut_within_a_character_is_a_cut_in_mid_line(tmp_path):
    records = made_up("fedhv", 0, ("klar", "blaß"), rounds=4, done=4, every=1, local_steps=10, participants=6)
    write_history(tmp_path, records)
    path = tmp_path / "history.jsonl"
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex("ß".encode()) + 1])
    read = read_rounds(tmp_path)
    assert len(read.rounds) == 3
    assert "middle of a line" in read.notes[0]


DAMAGE = (
    "{",
    "[]",
    "3",
    "null",
    '{"round": "4"}',
    '{"round": true}',
    '{"round": -4}',
    '{"round": 4, "evaluation": {}}',
    '{"round": 4, "evaluation": {"tasks": [1]}}',
    '{"round": 4}',
    '{"round": 4, "weights": "half", "downlink_bytes": 1, "uplink_bytes": 1, "exchanges": 1, "seconds": 1}',
    '{"round": 4, "weights": [1], "downlink_bytes": true, "uplink_bytes": 1, "exchanges": 1, "seconds": 1}',
    f'{{"round": 4, "weights": [1{"0" * 400}], "downlink_bytes": 1, "uplink_bytes": 1, "exchanges": 1, "seconds": 1}}',
)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_line_ends_the_history(tmp_path, records, damage):
    write_history(tmp_path, records)
    path = tmp_path / "history.jsonl"
    lines = path.read_text().splitlines()
    lines[3] = damage
    path.write_text("\n".join(lines) + "\n")
    read = read_rounds(tmp_path)
    assert len(read.rounds) == 3
    assert read.notes == ("history.jsonl, line 4 is not a round; only the 3 rounds before it are used",)


def test_rounds_that_go_back_end_the_history(tmp_path, records):
    write_history(tmp_path, [*records[:5], *records[2:]])
    read = read_rounds(tmp_path)
    assert read.rounds.number.tolist() == [1, 2, 3, 4, 5]
    assert "goes back to round 3" in read.notes[0]


def test_rounds_that_are_left_out_are_counted(tmp_path, records):
    write_history(tmp_path, [*records[:2], *records[5:]])
    assert read_rounds(tmp_path).notes == ("history.jsonl leaves out 3 rounds",)
    write_history(tmp_path, records[2:])
    assert read_rounds(tmp_path).notes == ("history.jsonl starts with round 3",)


def test_a_slack_of_other_tasks_and_a_loss_that_is_not_finite_are_not_known(tmp_path, records):
    records[1] |= {"slack": [1.0]}
    records[7]["evaluation"]["tasks"][0]["loss"] = math.nan
    write_history(tmp_path, records)
    read = read_rounds(tmp_path)
    assert np.isnan(read.rounds.slack[1]).all()
    assert math.isnan(read.evaluations.loss[-1, 0])
    assert read.notes == ("its evaluation is not finite from round 8 on",)


def test_other_tasks_in_one_round_are_noticed(tmp_path, records):
    records[7]["evaluation"]["tasks"].append({"name": "new", "accuracy": 1.0, "loss": 1.0})
    write_history(tmp_path, records)
    assert any("changes the number of tasks" in note for note in read_rounds(tmp_path).notes)


def test_no_history_at_all_is_no_rounds(tmp_path):
    read = read_rounds(tmp_path)
    assert (len(read.rounds), len(read.evaluations), read.tasks, read.notes) == (0, 0, (), ())


def test_a_summary_stands_in_for_a_lost_history(records):
    last = records[-1]["evaluation"]
    summary = {"setting": "digits", "method": "fedhv", "seed": 0, "rounds": 8, "weights": [0.4, 0.6], **last}
    summary |= {"seconds": 4.0, "calibration_seconds": 0.0, "total_seconds": 4.0, "min_report_slack": 0.125}
    sent = {"downlink_bytes": 80, "uplink_bytes": 160, "calibration_bytes": 0, "total_bytes": 240}
    read = from_summary(Summary.read(summary | {"communication": sent}))
    assert np.isnan(read.rounds.exchanges).all()
    assert read.evaluations.values("mean_accuracy").tolist() == [last["mean_accuracy"]]
    assert read.rounds.number.tolist() == [8]
    assert read.rounds.slack.min() == 0.125
    assert "only the final values" in read.notes[0]
