"""A module as a function of its flat parameter vector."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedhv.benchmarks.models import LeNet
from fedhv.problem.network import Network
from fedhv.problem.parameters import flatten


class Tied(nn.Module):
    """One matrix in two places, and one layer used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3, bias=False)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.again = self.second

    def forward(self, inputs):
        if inputs.isnan().any():
            raise RuntimeError("no NaN here")
        return [self.again(self.second(self.first(inputs)).tanh())]


@pytest.mark.parametrize(("model", "shape", "tasks"), [(LeNet, (4, 1, 28, 28), 2), (Tied, (4, 3), 1)])
def test_it_is_what_functional_call_gives_gradients_included(model, shape, tasks):
    network = Network(model, tasks, None, "cpu")
    inputs = torch.randn(shape)
    theta = torch.randn(network.layout.d, requires_grad=True)
    found = network(theta, inputs, training=False)
    network.module.eval()
    expected = torch.func.functional_call(network.module, network.layout.unflatten(theta), (inputs,))
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
    one, other = (torch.autograd.grad(sum(each.sum() for each in outputs), theta) for outputs in (found, expected))
    assert torch.equal(one[0], other[0])


def test_the_module_keeps_its_own_parameters_also_when_it_fails():
    network = Network(Tied, 1, None, "cpu")
    own, before = list(network.module.parameters()), flatten(network.module)
    theta = torch.randn(network.layout.d)
    network(theta, torch.ones(2, 3), training=True)
    with pytest.raises(RuntimeError, match="no NaN here"):
        network(theta, torch.full((2, 3), torch.nan), training=True)
    assert all(a is b for a, b in zip(own, network.module.parameters(), strict=True))
    assert torch.equal(flatten(network.module), before)
    assert network.module.second.weight is network.module.first.weight


def test_another_module_may_take_its_place():
    network = Network(Tied, 1, None, "cpu")
    theta, inputs = torch.randn(network.layout.d), torch.randn(2, 3)
    (expected,) = network(theta, inputs, training=False)
    network.module = Tied()  # with other parameters of its own, which must not matter
    (found,) = network(theta, inputs, training=False)
    assert torch.equal(found, expected)
