"""An error in a user's code is one line with its file and line, from any process of a command."""

from __future__ import annotations

import pytest

PROBLEM = """
import numpy as np
import torch
from fedhv import Problem, classification
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, inputs):
        if len(inputs) > 2:
            raise RuntimeError("too many examples")
        return [self.head(inputs)]


def load():
    inputs = np.random.default_rng(0).normal(size=(12, 3)).astype("float32")
    kinds = (inputs[:, 0] > 0).astype(int)
    return Problem.from_clients(Net, [classification("kind", 2)], [(inputs, [kinds])] * 2, test=(inputs, [kinds]))


def broken():
    raise ValueError("no table here")
"""
SETTING = """
benchmark = "my_problem_x:{name}"
[federation]
participants = 2
[training]
rounds = 1
batch_size = 4
local_steps = 1
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "my_problem_x.py").write_text(PROBLEM)
    for name in ("load", "broken"):
        (tmp_path / f"{name}.toml").write_text(SETTING.format(name=name))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "broken.toml"], "line 26: ValueError: no table here."),
        (["run", "load.toml", "--method", "uniform", "--engine", "sequential"], "line 15: RuntimeError: too many"),
        (["compare", "load.toml", "--methods", "uniform", "--seeds", "0,1", "--jobs", "2"], "line 15: RuntimeError"),
    ],
)
def test_it_has_file_and_line_and_no_traceback(words, said, folder, command):
    done = command(*words)
    assert done.code == 1
    assert said in " ".join(done.err.split())
    assert "my_problem_x.py" in done.err
    assert "Traceback" not in done.err


def test_a_variable_shows_the_traceback(folder, command, monkeypatch):
    monkeypatch.setenv("FEDHV_TRACEBACK", "1")
    with pytest.raises(ValueError, match="no table here"):
        command("run", "broken.toml")
