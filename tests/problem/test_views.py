"""Models that flatten images with `view` take images that are laid out channels last."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedhv import Problem, classification, run
from fedhv.problem.views import Reshaping


class Flattened(nn.Module):
    """A convolution, pooling, dropout, and heads on the flattened images, as in PyTorch's tutorials."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.dropout = nn.Conv2d(3, 4, 3, padding=1), nn.Dropout(0.3)
        self.heads = nn.ModuleList([nn.Linear(4 * 16, 2)])

    def forward(self, images: Tensor) -> list[Tensor]:
        found = self.dropout(nn.functional.max_pool2d(self.convolution(images).relu(), 2))
        return [head(self.flat(found)) for head in self.heads]

    def flat(self, found: Tensor) -> Tensor:
        return found.view(found.size(0), -1)


class Reshaped(Flattened):
    def flat(self, found: Tensor) -> Tensor:
        return found.reshape(found.size(0), -1)


def trained(model: type[nn.Module], engine: str) -> Tensor:
    draws = np.random.default_rng(0)
    images = draws.normal(size=(36, 3, 8, 8)).astype(np.float32)
    bright = (images.mean((1, 2, 3)) > 0).astype(np.int64)
    clients = [(images[i::3], [bright[i::3]]) for i in range(3)]
    problem = Problem.from_clients(model, [classification("bright", 2)], clients, test=(images, [bright]))
    found = run(problem, "uniform", rounds=2, quiet=True, engine=engine, batch_size=6, local_steps=2)
    return torch.cat([value.flatten() for value in found.state_dict.values()])


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_view_computes_what_reshape_computes(engine):
    assert torch.equal(trained(Flattened, engine), trained(Reshaped, engine))


def test_a_view_of_another_type_stays_a_view():
    numbers = torch.arange(4.0)
    with Reshaping():
        bits = numbers.view(torch.int32)
        assert numbers.view(2, 2).shape == numbers.view(size=(2, 2)).shape == numbers.view_as(bits.view(2, 2)).shape
    bits[0] = 1  # the memory is shared
    assert numbers[0] != 0
