"""Runs of models with BatchNorm: interrupted and resumed, every policy gives what an uninterrupted run gives."""

from __future__ import annotations

import pytest
from observers import Watch
from problems import TASKS, Normalised, examples
from runs_on_disk import contents

from fedhv import FedHV, Problem, run
from fedhv.support.errors import Interrupted

CHANGES = ["federation.participants=2", "training.batch_size=4", "training.local_steps=2"]


def play(norm, folder, observer=None, resume=False):
    parts = [(part.inputs, part.targets) for part in (examples(n, seed=n) for n in (9, 12, 15, 20))]
    return run(
        Problem.from_clients(Normalised, TASKS, parts, parts[0], norm=norm),
        FedHV(reference=(6.0, 6.0), report=1),
        rounds=6,
        out=folder,
        override=CHANGES,
        observer=observer,
        resume=resume,
    )


@pytest.mark.parametrize("norm", ["frozen", "local", "average", "group"])
def test_interrupted_and_resumed_equals_uninterrupted_bit_for_bit(norm, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    play(norm, whole)
    with pytest.raises(Interrupted):
        play(norm, broken, Watch(3))
    play(norm, broken, resume=True)
    assert contents(broken) == contents(whole)
    assert f'norm = "{norm}"' in (whole / "config.toml").read_text()
