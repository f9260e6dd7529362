"""Draws without interception: the same numbers, also for models that draw in ways that the first pass did not show."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedhv.problem.dropout import Draws, factors
from fedhv.problem.network import Network
from fedhv.problem.pooling import hooked

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
KEYS = [5, -6, 2**62]


class Model(nn.Module):
    """Layers with dropout, and more if it is switched on."""

    def __init__(self, more: bool = False, p: float = 0.5) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.Dropout(p), nn.ReLU(), nn.Dropout(0.3, inplace=True))
        self.head = nn.Sequential(nn.Linear(8, 3), nn.Dropout(0.2))
        self.more = more

    def forward(self, inputs):
        hidden = self.body(inputs)
        if self.more:
            hidden = F.dropout(hidden, 0.4, self.training)
            hidden = hidden + torch.randint(0, 2, (8,))  # no function of the key, but of the generator's state
        return self.head(hidden)


def network(**options) -> Network:
    return Network(lambda: Model(**options), 1, None, "cpu")


def theta(of: Network):
    return torch.randn(of.layout.d, generator=torch.Generator().manual_seed(1))


def passed(of: Network, key, inputs=X):
    torch.manual_seed(3)
    return of(theta(of), inputs, training=True, key=key)[0]


@pytest.fixture
def interceptions(monkeypatch):
    entered = set()
    enter = Draws.__enter__
    monkeypatch.setattr(Draws, "__enter__", lambda draws: (entered.add(draws), enter(draws))[1])
    return entered


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("ahead", [False, True])
def test_layers_that_take_their_draws_themselves_give_the_same_numbers(p, ahead, interceptions):
    direct = network(p=p)
    passed(direct, 0)
    interceptions.clear()
    if ahead:
        direct.prepare(KEYS)
    found = [passed(direct, key) for key in KEYS]
    assert not interceptions
    for key, each in zip(KEYS, found, strict=True):
        assert torch.equal(each, passed(network(p=p), key))  # the first pass of a network is intercepted
    assert len(interceptions) > 0


def test_draws_that_were_made_ahead_are_used_only_where_they_fit():
    direct = network()
    passed(direct, 0)
    direct.prepare(KEYS)
    assert torch.equal(passed(direct, KEYS[0], X[:4]), passed(network(), KEYS[0], X[:4]))
    assert torch.equal(passed(direct, 99), passed(network(), 99))
    assert torch.equal(passed(direct, KEYS[1]), passed(network(), KEYS[1]))
    direct.prepare([])
    assert torch.equal(passed(direct, KEYS[2]), passed(network(), KEYS[2]))


def test_a_model_that_draws_elsewhere_later_is_intercepted_from_then_on(interceptions):
    late = network()
    passed(late, 0)
    late.module.more = True
    interceptions.clear()
    assert torch.equal(passed(late, 7), passed(network(more=True), 7))
    assert torch.equal(passed(late, 8), passed(network(more=True), 8))
    assert len(interceptions) == 4


def test_copies_of_a_model_draw_for_the_same_network(interceptions):
    direct = network()
    passed(direct, 0)
    direct.module = copy.deepcopy(direct.module)
    interceptions.clear()
    assert torch.equal(passed(direct, 7), passed(network(), 7))
    assert len(interceptions) == 1


def test_a_hooked_layer_keeps_its_hook():
    seen = []

    class Hooked(Model):
        def __init__(self):
            super().__init__()
            self.body[1].register_forward_hook(lambda *_: seen.append(1))

    hooked = Network(Hooked, 1, None, "cpu")
    first, again = passed(hooked, 7), passed(hooked, 7)
    assert len(seen) == 2
    assert torch.equal(first, again)
    assert torch.equal(first, passed(network(), 7))


@pytest.mark.parametrize(
    "kind", ["forward", "forward_pre", "full_backward", "full_backward_pre"], ids=lambda kind: f"{kind} hook"
)
def test_every_kind_of_hook_keeps_its_layer(kind):
    layer = nn.Dropout(0.5)
    assert not hooked(layer)
    getattr(layer, f"register_{kind}_hook")(lambda *_: None)
    assert hooked(layer)


def test_factors_of_several_keys_are_those_of_each():
    made = factors(KEYS, 2, (4, 3), 0.25)
    for key, each in zip(KEYS, made, strict=True):
        draws = Draws(key)
        draws.count = 1
        assert torch.equal(each, draws.keep(torch.empty(4, 3), 0.25).float() / 0.75)
