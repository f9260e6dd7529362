"""Losses in units of where they begin, for every task kind and method, and a warning where they begin apart."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from observers import Watch
from torch import nn

import fedhv
from fedhv import InputError, Problem, classification, multilabel, regression
from fedhv.protocol.scales import initial_losses, uneven, with_scales
from fedhv.report.study import read_study
from fedhv.report.summaries import evaluation_table
from fedhv.report.tables import tables
from fedhv.runs.resolve import resolve


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.heads = nn.ModuleList([nn.Linear(8, 3), nn.Linear(8, 2), nn.Linear(8, 1)])

    def forward(self, x):
        hidden = torch.relu(self.body(x))
        return [head(hidden) for head in self.heads]


def problem(factor=1.0, scale=None) -> Problem:
    rng = np.random.default_rng(0)

    def part(n):
        x = rng.normal(size=(n, 4)).astype(np.float32)
        return x, [rng.integers(0, 3, n), rng.integers(0, 2, (n, 2)), factor * x[:, :1].sum(1)]

    tasks = [
        classification("kind", 3, scale=scale),
        multilabel("flags", 2, scale=scale),
        regression("size", 1.0, scale=scale),
    ]
    return Problem.from_clients(Net, tasks, [part(20) for _ in range(4)], test=part(30), name="mixed")


def test_a_scaled_loss_is_the_loss_divided_by_its_scale_and_nothing_else_changes():
    plain = fedhv.run(problem(), "uniform", rounds=2, quiet=True)
    same = fedhv.run(problem(), "uniform", rounds=2, quiet=True, scale="none")
    assert plain.rounds[-1].evaluation == same.rounds[-1].evaluation
    halved = problem()
    halved = replace(halved, tasks=tuple(replace(task, scale=2.0) for task in halved.tasks))
    # Half the losses at twice the rate are the same gradient steps, and the losses that are shown are half as large.
    scaled = fedhv.run(halved, fedhv.Uniform(server_lr=1.0, local_lr=0.2), rounds=2, quiet=True)
    double = fedhv.run(problem(), fedhv.Uniform(server_lr=1.0, local_lr=0.1), rounds=2, quiet=True)
    for one, other in zip(scaled.tasks, double.tasks, strict=True):
        assert one.loss == pytest.approx(other.loss / 2, rel=1e-4)


@pytest.mark.parametrize("method", ["uniform", "fedhv", "fsmgda", "fedcmoo", "stch"])
def test_every_method_gets_the_same_run_whatever_the_units_of_a_target(method):
    """A loss in units of where it begins does not know whether its targets are metres or kilometres."""
    runs = [
        fedhv.run(mixed, method, rounds=3, quiet=True, scale="initial", override=["calibration.rounds=2"])
        for mixed in (problem(), by_hand(10.0))
    ]
    assert runs[0].tasks[2].loss == pytest.approx(runs[1].tasks[2].loss, rel=5e-3)
    assert runs[0].weights == pytest.approx(runs[1].weights, abs=2e-3)


def by_hand(factor: float) -> Problem:
    """The same problem with one loss in other units."""
    mixed = problem()
    last = mixed.tasks[2]
    larger = replace(
        last,
        loss=lambda outputs, targets: factor * last.loss(outputs, targets),
        entry_loss=None,
    )
    return replace(mixed, tasks=(*mixed.tasks[:2], larger))


def test_from_a_task_from_an_argument_and_from_a_setting_are_the_same():
    measured = with_scales(problem(scale="initial"), everywhere=False)
    everywhere = resolve(problem(), ["training.scale=initial"])[1]
    assert [task.scale for task in measured.tasks] == [task.scale for task in everywhere.tasks]
    assert [task.scale for task in measured.tasks] == pytest.approx(initial_losses(problem()), rel=5e-3)
    given = replace(problem(), tasks=(replace(problem().tasks[0], scale=7.0), *problem().tasks[1:]))
    assert resolve(given, ["training.scale=initial"])[1].tasks[0].scale == 7.0
    assert initial_losses(measured) == pytest.approx(initial_losses(problem()))


def test_losses_that_begin_far_apart_give_one_line_before_the_run():
    assert uneven(problem()) == ""
    said = uneven(problem(factor=100.0))
    assert said.startswith("Initial losses differ")
    assert "size" in said
    assert "\n" not in said
    watch = Watch()
    fedhv.run(problem(factor=100.0), fedhv.Uniform(local_lr=1e-6), rounds=1, observer=watch)
    assert said in watch.said
    with pytest.warns(UserWarning, match="Initial losses differ"):
        fedhv.run(problem(factor=100.0), fedhv.Uniform(local_lr=1e-6), rounds=1, quiet=True)
    with pytest.warns(UserWarning, match="References differ"):
        fedhv.run(problem(), fedhv.FedHV(), rounds=1, reference=[4.0, 3.0, 40.0], quiet=True)
    scaled = Watch()
    fedhv.run(problem(factor=100.0), "uniform", rounds=1, scale="initial", observer=scaled)
    assert not any("differ" in text for text in scaled.said)


def test_tables_name_the_units(tmp_path):
    study = fedhv.compare(problem(), ["uniform", "stch"], [0], rounds=1, out=tmp_path, scale="initial", quiet=True)
    assert "losses in units of" in study.table(200)
    assert len(study[0].summary.loss_units) == 3
    assert any("are in units of" in table.caption for table in tables(read_study([tmp_path])))
    plain = fedhv.compare(problem(), ["uniform"], [0], rounds=1, quiet=True)
    assert "units" not in plain.table(200)
    assert "loss_units" not in plain[0].summary.as_dict()


def test_another_scale_is_another_run(tmp_path):
    fedhv.run(problem(), "uniform", rounds=1, out=tmp_path, quiet=True)
    with pytest.raises(InputError, match="the tasks"):
        fedhv.run(problem(scale=2.0), "uniform", rounds=1, out=tmp_path, resume=True, quiet=True)


def test_mistakes_with_scales_are_one_line():
    with pytest.raises(InputError, match="positive number or 'initial'"):
        classification("kind", 3, scale=-1.0)
    with pytest.raises(InputError, match=r"`training\.scale`"):
        fedhv.run(problem(), "uniform", rounds=1, scale="first", quiet=True)


class Narrow(Net):
    """Its first layer takes five numbers where examples have four."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(5, 8)


@pytest.mark.parametrize("scale", ["none", "initial"])
def test_a_model_that_does_not_fit_is_one_line_with_and_without_a_scale(scale):
    with pytest.raises(InputError, match=r"should take the problem's inputs, for two examples \(2, 4\)"):
        fedhv.run(replace(problem(), model=Narrow), "uniform", rounds=1, quiet=True, scale=scale)


@pytest.mark.parametrize(
    ("scale", "setting"), [("initial", "none"), (None, "initial"), (2.0, "initial"), (2.0, "none")]
)
def test_an_evaluation_has_the_units_of_the_run(scale, setting, tmp_path):
    given = problem(50.0, scale)
    given = replace(given, tasks=(replace(given.tasks[0], scale=None), *given.tasks[1:]))
    run = fedhv.run(given, "uniform", rounds=2, quiet=True, scale=setting, out=tmp_path / "run")
    for source in (run, tmp_path / "run"):
        again = fedhv.evaluate(source, problem=given)
        assert [task.loss for task in again.tasks] == [task.loss for task in run.tasks]
        assert again.hypervolume == run.hypervolume
    table = evaluation_table(again, "t", run.loss_units)
    assert table.caption.startswith(f"losses in units of {run.loss_units[0]:.3g} (kind), ")


def test_an_evaluation_on_a_problem_with_other_tasks_is_refused(tmp_path):
    run = fedhv.run(problem(), "uniform", rounds=1, quiet=True, scale="initial")
    x, targets = np.zeros((2, 4), np.float32), [[0, 1], [[0, 1], [1, 0]]]
    two = Problem.from_clients(Net, problem().tasks[:2], [(x, targets)], (x, targets))
    with pytest.raises(InputError, match=r"^The problem should have the run's 3 tasks\. Found 2\.$"):
        fedhv.evaluate(replace(run, problem=two))
