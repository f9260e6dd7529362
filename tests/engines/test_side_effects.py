"""Models whose passes change something, or read parameters past their modules, are refused before a run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedhv
from fedhv import InputError, Problem, classification


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.heads = nn.Linear(3, 4), nn.ModuleList([nn.Linear(4, 2)])

    def forward(self, inputs: Tensor) -> list[Tensor]:
        return [head(self.layer(inputs)) for head in self.heads]


class WritesInputs(Base):
    def forward(self, inputs: Tensor) -> list[Tensor]:
        inputs -= 1.0
        return super().forward(inputs)


class InPlaceFirst(Base):
    def forward(self, inputs: Tensor) -> list[Tensor]:
        return super().forward(nn.functional.relu(inputs, inplace=self.training))


class Clamped(Base):
    def forward(self, inputs: Tensor) -> list[Tensor]:
        with torch.no_grad():
            self.layer.weight.clamp_(-0.1, 0.1)
        return super().forward(inputs)


class Renormed(Base):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5, 3, max_norm=100.0)  # no vector is as long as that yet

    def forward(self, inputs: Tensor) -> list[Tensor]:
        return super().forward(self.words(inputs.abs().long().clamp(max=4)).mean(dim=1))


class Referenced(Base):
    def __init__(self) -> None:
        super().__init__()
        self.weights = [self.layer.weight]

    def forward(self, inputs: Tensor) -> list[Tensor]:
        return [head(inputs @ self.weights[0].T) for head in self.heads]


def problem(model: type[nn.Module], test_width: int = 3) -> Problem:
    draws = np.random.default_rng(0)
    inputs = draws.normal(size=(12, 3)).astype(np.float32)
    kinds = (inputs[:, 0] > 0).astype(np.int64)
    test = draws.normal(size=(6, test_width)).astype(np.float32), [kinds[:6]]
    return Problem.from_clients(model, [classification("kind", 2)], [(inputs, [kinds])], test=test)


def begin(model: type[nn.Module], folder, **options):
    return fedhv.run(problem(model, **options), "uniform", rounds=1, participants=1, out=folder / "run", quiet=True)


@pytest.mark.parametrize(
    ("model", "found"),
    [
        (WritesInputs, "should not write into its inputs"),
        (InPlaceFirst, "should not write into its inputs"),
        (Clamped, "changes 'layer.weight' in place"),
        (Renormed, r"changes 'words.weight' in place.*`max_norm`"),
        (Referenced, "a reference of its own to a parameter"),
    ],
)
def test_it_is_refused_and_nothing_is_written(model, found, tmp_path):
    with pytest.raises(InputError, match=found):
        begin(model, tmp_path)
    assert not (tmp_path / "run").exists()


def test_the_users_examples_stay_as_they_are():
    given = problem(WritesInputs)
    before = given.train.inputs.clone()
    with pytest.raises(InputError):
        fedhv.run(given, "uniform", rounds=1, participants=1, quiet=True)
    assert torch.equal(given.train.inputs, before)


def test_a_model_without_side_effects_keeps_its_parameters(tmp_path):
    shared = Base()
    before = {name: value.clone() for name, value in shared.state_dict().items()}
    begin(lambda: shared, tmp_path)
    assert all(torch.equal(value, before[name]) for name, value in shared.state_dict().items())


def test_test_examples_of_another_shape_are_found_before_the_run(tmp_path):
    with pytest.raises(InputError, match=r"should take the test examples' inputs, for two examples \(2, 5\)"):
        begin(Base, tmp_path, test_width=5)
    assert not (tmp_path / "run").exists()
