"""A stack's own order of weights: the same runs as in θ's order, whatever a local step keeps beside the model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fedhv import SCAFFOLD, FedCMOO, FedProx, LocalTraining, Problem, Uniform, classification
from fedhv.engines import Sequential, Stacked, compiled
from fedhv.engines.kernels.fusion import weight_axes, with_stacked_kernels
from fedhv.engines.weight_order import WeightOrder
from fedhv.problem.parameters import Layout, flatten
from fedhv.simulation.rounds import Plan, simulate

TASKS = [classification("left", 3), classification("right", 4)]
View = Callable[[Tensor], Tensor]


def method_view(weight: Tensor) -> Tensor:
    """A model computes `reshape` in its place where the memory cannot be viewed."""
    return weight.view(4, -1)


def operator_view(weight: Tensor) -> Tensor:
    """No such replacement: the weight has to be in its usual order."""
    return torch.ops.aten.view(weight, [4, -1])


class Images(nn.Module):
    """A full and a depthwise convolution with BatchNorm between them; `view`, if given, is a view of a weight."""

    def __init__(self, view: View | None = None) -> None:
        super().__init__()
        self.view = view
        self.wide = nn.Conv2d(2, 4, (3, 2), padding=1, bias=False)  # BatchNorm would remove a bias
        self.norm = nn.BatchNorm2d(4)
        self.each = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.point = nn.Conv2d(4, 5, 1)
        self.heads = nn.ModuleList([nn.Linear(5, 3), nn.Linear(5, 4)])

    def forward(self, images: Tensor) -> list[Tensor]:
        features = torch.tanh(self.point(self.each(torch.tanh(self.norm(self.wide(images))))))
        level = self.view(self.wide.weight).square().sum() if self.view else 0.0
        return [head(features.mean(dim=(2, 3))) + level for head in self.heads]


def problem(norm: str = "average", view: View | None = None) -> Problem:
    draws = torch.Generator().manual_seed(0)
    clients = [
        (torch.randn(n, 2, 5, 6, generator=draws), [torch.randint(0, c, (n,), generator=draws) for c in (3, 4)])
        for n in (6, 9, 14)
    ]
    return Problem.from_clients(lambda: Images(view), TASKS, clients, clients[0], norm=norm)


def with_order(problem: Problem) -> Stacked:
    """A stack as on a GPU: layers that kernels compute, and their order of weights."""
    engine = Stacked(problem)
    engine._install(with_stacked_kernels(engine._plain))
    return engine


def test_parameters_are_views_of_a_vector_whose_entries_changed_places():
    module = with_stacked_kernels(Images())
    layout = Layout.of(module, 2)
    order = WeightOrder(layout, weight_axes(module))
    theta = flatten(module)
    inside = order.enter(theta)
    for name, view in order.named(inside).items():
        assert torch.equal(view, module.get_parameter(name))
        assert view.untyped_storage().data_ptr() == inside.untyped_storage().data_ptr()
    wide = order.named(inside)["wide.weight"]
    assert wide.permute(2, 3, 0, 1).is_contiguous()
    assert not torch.equal(inside, theta)
    rows = torch.randn(3, layout.d)
    assert torch.equal(order.leave(order.enter(rows)), rows)
    assert torch.equal(order.enter(rows)[1], order.enter(rows[1]))
    column = torch.randn(3, 1)
    assert order.enter(column) is column  # no vector of parameters


WAYS = [
    (Uniform(), {"momentum": 0.9, "keep_state": True}),
    (Uniform(), {"optimiser": "adamw", "weight_decay": 0.1, "keep_state": True, "clip": 0.5}),
    (FedProx(mu=0.3), {"weight_decay": 0.01}),
    (SCAFFOLD(), {}),
    (FedCMOO(), {}),
]


@pytest.mark.parametrize(("method", "way"), WAYS, ids=lambda each: getattr(each, "name", ""))
def test_runs_are_those_of_the_sequential_engine(method, way):
    norm = "local" if isinstance(method, FedProx) else "average"
    plan = Plan(rounds=3, participants=3, local=LocalTraining(3, 6, 0.05, **way), seed=1)
    models = []
    for engine in (Sequential(problem(norm)), with_order(problem(norm))):
        with engine:
            *_, last = simulate(engine, method, plan)
            models.append(last.state.model)
            assert isinstance(engine, Sequential) or (engine.steps.order.changes and engine.obstacle is None)
    torch.testing.assert_close(models[1], models[0], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(("view", "changes"), [(method_view, True), (operator_view, False)])
def test_a_model_that_views_its_weights_has_copies_of_them_or_their_usual_order(view, changes):
    plan = Plan(rounds=1, participants=3, local=LocalTraining(2, 6, 0.05), seed=1)
    with with_order(problem(view=view)) as engine, Sequential(problem(view=view)) as other:
        *_, last = simulate(engine, Uniform(), plan)
        *_, right = simulate(other, Uniform(), plan)
        assert engine.obstacle is None
        assert engine.steps.order.changes == changes
    torch.testing.assert_close(last.state.model, right.state.model, rtol=2e-4, atol=2e-5)


def quick_compiler(monkeypatch):
    """What would be compiled is traced and called: the trace contains the order of weights as compiled code does."""
    monkeypatch.setattr(compiled, "_options", dict)
    monkeypatch.setattr(compiled.torch, "compile", lambda graph, **options: graph)


@pytest.mark.parametrize("failures", [1, 2])
def test_after_a_failure_nothing_is_computed_by_code_for_another_order(monkeypatch, failures):
    """A recording may fail after the code is compiled; the next attempt is in the usual order of weights."""
    quick_compiler(monkeypatch)
    plan = Plan(rounds=2, participants=3, local=LocalTraining(2, 6, 0.05), seed=1)
    engine = Stacked(problem(), compiled=True)
    engine._install(with_stacked_kernels(engine._plain))
    compute, failed = engine.training.compute, []

    def fails(*arguments):
        found = compute(*arguments)
        if len(failed) < failures:
            failed.append(engine.steps.order.changes)
            raise RuntimeError("operation not permitted when stream is capturing")
        return found

    monkeypatch.setattr(engine.training, "compute", fails)
    with engine, Sequential(problem()) as other:
        *_, last = simulate(engine, Uniform(), plan)
        *_, right = simulate(other, Uniform(), plan)
        assert failed == [True, False][:failures]
        assert engine.obstacle is None
        assert engine.steps.order.changes == (failures == 2), "where the order was not the reason, it is kept"
    torch.testing.assert_close(last.state.model, right.state.model, rtol=2e-4, atol=2e-5)


def test_a_later_failure_does_not_bring_back_an_order_that_had_failed(monkeypatch):
    quick_compiler(monkeypatch)
    plan = Plan(rounds=3, participants=3, local=LocalTraining(2, 6, 0.05), seed=1)
    engine, orders = with_order(problem(view=operator_view)), []
    compute = engine.training.compute

    def fails_compiled(stack, shape):
        found = compute(stack, shape)
        orders.append(engine.steps.order.changes)
        if engine.training.compiles:
            raise RuntimeError("no compiler")
        return found

    monkeypatch.setattr(engine.training, "compute", fails_compiled)
    with engine:
        for finished in simulate(engine, Uniform(), plan):
            engine.training.compiles = finished.number == 1
    assert orders == [False] * 4, "the second round twice"
    assert engine.notes == ["The stack is computed without compilation, which failed: no compiler."]
