"""Input that turns out to be bad in the first round leaves no folder; a later error keeps the rounds before it."""

from __future__ import annotations

import pytest

import fedhv
from fedhv import InputError
from fedhv.methods.uniform import Uniform
from fedhv.runs.history import NAME

MOMENTUM = ["training.momentum=0.9"]
"""SCAFFOLD's clients refuse it when they are asked."""


def test_a_run_leaves_no_folder(setting_file, tmp_path):
    with pytest.raises(InputError, match="scaffold"):
        fedhv.run(str(setting_file), "scaffold", rounds=2, override=MOMENTUM, out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_study_keeps_its_good_runs(jobs, setting_file, tmp_path):
    with pytest.raises(InputError, match="scaffold"):
        fedhv.compare(
            str(setting_file), ["uniform", "scaffold"], [0], rounds=2, override=MOMENTUM, out=tmp_path, jobs=jobs,
            quiet=True,
        )  # fmt: skip
    assert not (tmp_path / "scaffold-seed0").exists()


def test_rounds_that_were_computed_are_kept(setting_file, tmp_path, monkeypatch):
    before, rounds = Uniform.round, []

    def fails_later(self, state):
        rounds.append(1)
        if len(rounds) == 3:
            raise InputError("The third round should not be asked for.")
        return (yield from before(self, state))

    monkeypatch.setattr(Uniform, "round", fails_later)
    with pytest.raises(InputError, match="after round 2"):
        fedhv.run(str(setting_file), "uniform", rounds=4, out=tmp_path / "run", quiet=True)
    assert len((tmp_path / "run" / NAME).read_text().splitlines()) == 2
