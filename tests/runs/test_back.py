"""`--resume-from N`: a run goes back to a round whose checkpoint was kept, and ends as an undisturbed one does."""

from __future__ import annotations

import pytest
import torch
from problems import everything_random

import fedhv
from fedhv.runs.checkpoint import kept_rounds
from fedhv.support.errors import InputError

OPTIONS = {
    "rounds": 6,
    "engine": "sequential",
    "override": ["training.batch_size=8", "training.local_steps=1", "federation.participants=3", "evaluation.every=0"],
}
KEEP = {**OPTIONS, "override": [*OPTIONS["override"], "record.checkpoints=2"]}


def same(a, b):
    return all(torch.equal(value, b.state_dict[name]) for name, value in a.state_dict.items())


def test_a_run_goes_back_and_ends_as_if_nothing_had_happened(tmp_path):
    problem = everything_random()
    whole = fedhv.run(problem, "uniform", out=tmp_path / "run", **KEEP)
    assert kept_rounds(tmp_path / "run") == [2, 4, 6]
    again = fedhv.run(problem, "uniform", out=tmp_path / "run", resume_from=4, **KEEP)
    assert same(whole, again)
    assert [played.number for played in again.rounds] == [1, 2, 3, 4, 5, 6]


def test_the_last_kept_round_before_it_will_do(tmp_path):
    problem, said = everything_random(), []
    fedhv.run(problem, "uniform", out=tmp_path / "run", **KEEP)

    class Notes(fedhv.Observer):
        def message(self, text):
            said.append(text)

        def start(self, label, rounds, done=0):
            said.append(done)

    fedhv.run(problem, "uniform", out=tmp_path / "run", resume_from=5, observer=Notes(), **KEEP)
    assert f"The run in {tmp_path / 'run'} continues after round 4 (round 5 was not kept)." in said
    assert 4 in said


def test_a_study_goes_back_as_a_whole_or_not_at_all(tmp_path):
    problem = everything_random()
    options = {**KEEP, "jobs": 1}
    before = fedhv.compare(problem, ["uniform"], [0, 1], out=tmp_path, **options)
    (tmp_path / "uniform-seed1" / "checkpoint-000002.safetensors").unlink()
    with pytest.raises(InputError, match=r"uniform-seed1 should have a kept checkpoint of round 3.*Found rounds: 4, 6"):
        fedhv.compare(problem, ["uniform"], [0, 1], out=tmp_path, resume_from=3, **options)
    assert (tmp_path / "uniform-seed0" / "summary.json").exists()
    after = fedhv.compare(problem, ["uniform"], [0, 1], out=tmp_path, resume_from=4, **options)
    assert all(same(a, b) for a, b in zip(before, after, strict=True))


def test_there_has_to_be_a_run_to_go_back_in(tmp_path):
    problem = everything_random()
    for named, match in (
        ({"out": tmp_path / "none", "resume_from": 2}, "needs a folder with a run"),
        ({"resume_from": 2}, "needs a folder with a run"),
        ({"out": tmp_path, "resume_from": 0}, "from 1"),
        ({"out": tmp_path, "resume_from": 2, "fresh": True}, "--fresh"),
    ):
        with pytest.raises(InputError, match=match):
            fedhv.run(problem, "uniform", **named, **OPTIONS)
    assert not list(tmp_path.iterdir())


def test_three_checkpoints_of_tenths_of_the_rounds_are_kept_unless_it_is_said_otherwise(tmp_path, monkeypatch):
    monkeypatch.setattr("fedhv.engines.Sequential.saves_every_round", True)
    problem, options = everything_random(), {**OPTIONS, "rounds": 30}
    fedhv.run(problem, "uniform", out=tmp_path / "run", **options)
    assert kept_rounds(tmp_path / "run") == [21, 24, 27]
    none = {**options, "override": [*OPTIONS["override"], "record.checkpoints=0"]}
    fedhv.run(problem, "uniform", out=tmp_path / "none", **none)
    assert kept_rounds(tmp_path / "none") == []


def test_what_is_recorded_may_change_when_a_run_goes_on(tmp_path):
    problem = everything_random()
    fedhv.run(problem, "uniform", out=tmp_path / "run", **OPTIONS)
    again = {**OPTIONS, "override": [*OPTIONS["override"], "record.cohort=false"]}
    assert len(fedhv.run(problem, "uniform", out=tmp_path / "run", resume=True, **again).rounds) == 6


def test_the_command_line_goes_back(tmp_path, command):
    small = ["--set", "training.local_steps=1", "--set", "record.checkpoints=2", "--set", "evaluation.every=0"]
    line = ["run", "digits", "--method", "uniform", "--rounds", "4", *small, "--out", str(tmp_path / "run")]
    assert command(*line).code == 0
    went = command(*line, "--resume-from", "2")
    assert went.code == 0
    assert "continues after round 2" in went.err.replace("\n", " ")
