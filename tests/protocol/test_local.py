"""Local training: update rules against torch.optim, clipping, schedules, unequal steps, state that is kept."""

import math

import numpy as np
import pytest
import torch
from problems import TASKS, Small, examples

from fedhv import FSMGDA, InputError, LocalTraining, Problem, Uniform
from fedhv.engines import Parallel, Sequential, Stacked
from fedhv.protocol.local import SGD, Adam, Linear, Proximal, Schedule, descend, stack_terms
from fedhv.simulation.rounds import Plan, simulate

A = torch.diag(torch.tensor([1.0, 3.0, 0.2]))
START = torch.tensor([1.0, -2.0, 0.5])


def gradients(steps):
    """Of ½θᵀAθ + sin(Σθ), which no rule solves in a step."""
    return [lambda theta: theta @ A + torch.cos(theta.sum(-1, keepdim=True)) for _ in range(steps)]


def by_torch(make, steps, clip=None):
    theta = START.clone().requires_grad_()
    optimiser = make([theta])
    for gradient in gradients(steps):
        theta.grad = gradient(theta.detach())
        if clip is not None:
            torch.nn.utils.clip_grad_norm_([theta], clip)
        optimiser.step()
    return theta.detach()


RULES = [
    (SGD(), lambda p: torch.optim.SGD(p, lr=0.1)),
    (SGD(0.9), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    (SGD(0.9, nesterov=True), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True)),
    (SGD(0.5, weight_decay=0.3), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.5, weight_decay=0.3)),
    (Adam(), lambda p: torch.optim.Adam(p, lr=0.1)),
    (Adam(0.8, 0.95, 1e-4, 0.2), lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.2)),
    (Adam(weight_decay=0.2, decoupled=True), lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.2)),
]


@pytest.mark.parametrize("clip", [None, 0.7])
@pytest.mark.parametrize(("rule", "make"), RULES)
def test_update_rules_are_those_of_torch_optim(rule, make, clip):
    expected = by_torch(make, 12, clip)
    alone, _ = descend(START, gradients(12), 0.1, rule, clip=clip)
    torch.testing.assert_close(alone, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("rule", [rule for rule, _ in RULES])
def test_a_stack_is_its_rows(rule):
    starts = torch.stack([START, 2 * START, -START])
    rates = torch.tensor([[0.1], [0.05], [0.2]])
    stacked, state = descend(starts, gradients(5), rates, rule, clip=1.0)
    for row, start, rate in zip(stacked, starts, rates, strict=True):
        alone, _ = descend(start, gradients(5), float(rate), rule, clip=1.0)
        torch.testing.assert_close(row, alone)
    assert tuple(each.shape[-1] for each in state) == rule.widths(3)


@pytest.mark.parametrize("rule", [rule for rule, _ in RULES])
def test_state_that_is_handed_on_goes_on_as_if_nothing_had_happened(rule):
    whole, _ = descend(START, gradients(7), 0.1, rule)
    half, state = descend(START, gradients(3), 0.1, rule)
    rest, _ = descend(half, gradients(4), 0.1, rule, state=state)
    assert torch.equal(whole, rest)


@pytest.mark.parametrize("rule", [rule for rule, _ in RULES])
def test_clients_that_are_through_wait_for_the_others(rule):
    starts, rates = torch.stack([START, 2 * START]), torch.tensor([[0.1], [0.1]])
    active = torch.tensor([[1, 1], [1, 1], [0, 1], [0, 1]], dtype=torch.bool)[..., None]
    stacked, state = descend(starts, gradients(4), rates, rule, active=active)
    for row, steps in enumerate((2, 4)):
        alone, last = descend(starts[row], gradients(steps), 0.1, rule)
        torch.testing.assert_close(stacked[row], alone)
        for mine, expected in zip(state, last, strict=True):
            torch.testing.assert_close(mine[row], expected)


def test_terms_add_their_gradients_and_stack():
    near, push = Proximal(0.5, START), Linear(torch.tensor([0.0, 0.1, 0.0]))
    moved, _ = descend(2 * START, [lambda theta: torch.zeros(3)], 1.0, SGD(), [near, push])
    torch.testing.assert_close(moved, 2 * START - 0.5 * START - torch.tensor([0.0, 0.1, 0.0]))
    stack = stack_terms([Proximal(0.5, START), Proximal(0.5, 3 * START)])
    torch.testing.assert_close(stack.gradient(torch.zeros(2, 3)), torch.stack([-0.5 * START, -1.5 * START]))
    assert Proximal(0.5, START).kind != Proximal(0.6, START).kind


# --- schedules, by hand -----------------------------------------------------------------------------------


def test_schedules_by_hand():
    assert [Schedule().at(t, 10) for t in (0, 9)] == [1.0, 1.0]
    assert [Schedule("step", every=2, factor=0.5).at(t, 6) for t in range(6)] == [1, 1, 0.5, 0.5, 0.25, 0.25]
    cosine = Schedule("cosine", factor=0.2)
    assert cosine.at(0, 4) == pytest.approx(1.0)
    assert cosine.at(2, 4) == pytest.approx(0.6)  # halfway between 1 and 0.2
    assert cosine.at(3, 4) == pytest.approx(0.2 + 0.4 * (1 + math.cos(0.75 * math.pi)))
    warm = Schedule(warm_up=3)
    assert [warm.at(t, 10) for t in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert Schedule("step", every=1, factor=0.0).at(5, 10) > 0


# --- the same on every engine ---------------------------------------------------------------------------------


class Plain(Small):
    """Without dropout."""

    def __init__(self):
        super().__init__()
        self.encoder = self.encoder[:2]


def unequal():
    data, ends = examples(80, 1), np.cumsum([7, 30, 20, 23])
    parts = [data[int(a) : int(b)] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    return Problem.from_clients(Plain, TASKS, [(p.inputs, p.targets) for p in parts], (data.inputs, data.targets))


WAYS = [
    {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    {"optimiser": "adamw", "weight_decay": 0.1, "learning_rate": 0.01, "clip": 0.5},
    {"epochs": 2},
    {"epochs": 2, "optimiser": "adam", "keep_state": True, "learning_rate": 0.01},
    {"momentum": 0.5, "keep_state": True},
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", [Uniform(), FSMGDA()])
def test_every_way_to_train_is_the_same_on_every_engine(way, method):
    local = LocalTraining(**{"steps": 3, "batch_size": 4, "learning_rate": 0.1} | way)
    plan = Plan(3, 3, local, schedule=Schedule("cosine", warm_up=1))

    def model(engine):
        with engine(unequal()) as where:
            *_, last = simulate(where, method, plan)
        return last.state.model

    expected = model(Sequential)
    assert torch.equal(model(Parallel), expected)
    torch.testing.assert_close(model(Stacked), expected, rtol=1e-5, atol=1e-6)


def test_kept_state_changes_the_later_rounds_alone():
    def models(**more):
        local = LocalTraining(3, 4, 0.1, 0.9, **more)
        return [r.state.model for r in simulate(Sequential(unequal()), Uniform(), Plan(3, 4, local))]

    fresh, kept = models(), models(keep_state=True)
    assert torch.equal(fresh[0], kept[0])
    assert not torch.equal(fresh[1], kept[1])


def test_epochs_give_larger_clients_more_steps():
    local = LocalTraining(batch_size=4, epochs=2)
    assert [local.steps_of(n) for n in (1, 3, 4, 7, 30)] == [2, 2, 2, 2, 14]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"optimiser": "adm"}, "'adm'.*adam"),
        ({"nesterov": True}, "`nesterov` needs"),
        ({"keep_state": True}, "plain SGD has none"),
        ({"optimiser": "adam", "momentum": 0.9}, "`momentum` is of SGD"),
        ({"weight_decay": -1.0}, "`weight_decay`"),
        ({"betas": (0.9,)}, "`betas`"),
        ({"betas": (0.9, 1.0)}, "`betas`"),
        ({"epsilon": 0.0}, "`epsilon`"),
        ({"clip": 0.0}, "`clip`"),
        ({"epochs": 0}, "`epochs`"),
    ],
)
def test_ways_to_train_that_mean_nothing_are_refused_in_one_line(wrong, words):
    with pytest.raises(InputError, match=words) as caught:
        LocalTraining(**wrong)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", [{"kind": "cosin"}, {"warm_up": -1}, {"every": 0}, {"factor": 2.0}])
def test_schedules_that_mean_nothing_are_refused(wrong):
    with pytest.raises(InputError, match="`schedule"):
        Schedule(**wrong)
