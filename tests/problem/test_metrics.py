"""Metrics over the whole test set: against values worked by hand, with missing labels, and what is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import fedhv
from fedhv import InputError, Metric, Task, classification, multilabel, regression
from fedhv.engines.sequential import Sequential
from fedhv.problem.metrics import METRICS, measure
from fedhv.problem.parameters import flatten

LOGITS = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 0.5], [1.0, 0.0], [0.0, 3.0]])
LABELS = torch.tensor([0, 1, 0, 1, 1])


def of(task, outputs, targets, mask=None):
    return measure(task, outputs, targets, mask)


def test_binary_metrics_by_hand():
    task = classification("risk", 2, metrics=["roc_auc", "average_precision", "f1", "balanced_accuracy"])
    found = of(task, LOGITS, LABELS)
    # margins -2, 1, 0.5, -1, 3 of labels 0, 1, 0, 1, 1: five of six pairs are in order
    assert found["roc_auc"] == pytest.approx(5 / 6)
    assert found["average_precision"] == pytest.approx((1 + 1 + 3 / 4) / 3)
    assert found["f1"] == pytest.approx(2 / 3)  # two right of three found and three wanted
    assert found["balanced_accuracy"] == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert next(iter(found)) == "roc_auc"  # the main one stays first


def test_several_classes_are_averaged():
    task = classification("kind", 3, metrics=["roc_auc", "f1", "balanced_accuracy"])
    found = of(task, 5 * torch.eye(3)[[0, 1, 2, 0]], torch.tensor([0, 1, 2, 1]))
    assert found["balanced_accuracy"] == pytest.approx((1 + 1 / 2 + 1) / 3)
    assert found["f1"] == pytest.approx((2 / 3 + 2 / 3 + 1) / 3)
    # class 0 against the others: the wrong one ties with the right one
    assert found["roc_auc"] == pytest.approx((5 / 6 + 3 / 4 + 1) / 3)


def test_calibration_error_by_hand():
    logits = torch.tensor([[0.0, math.log(3.0)]] * 4)  # a confidence of 3/4, three of four right
    assert of(classification("a", 2, metrics=["calibration_error"]), logits, torch.tensor([1, 1, 1, 0]))[
        "calibration_error"
    ] == pytest.approx(0.0, abs=1e-6)
    wrong = of(multilabel("a", 1, metrics=["calibration_error"]), logits[:, 1:], torch.tensor([[0.0]] * 4))
    assert wrong["calibration_error"] == pytest.approx(3 / 4)


def test_metrics_of_numbers_by_hand():
    task = regression("stay", 1.0, metrics=["rmse", "mae", "r2", "rank_correlation"])
    found = of(task, torch.tensor([[1.0], [2.0], [5.0]]), torch.tensor([1.0, 3.0, 2.0]))
    assert found["rmse"] == pytest.approx(math.sqrt(10 / 3))
    assert found["mae"] == pytest.approx(4 / 3)
    assert found["r2"] == pytest.approx(1 - 10 / 2)
    assert found["rank_correlation"] == pytest.approx(0.5)


def test_only_labelled_examples_count():
    task = classification("risk", 2, metrics=["roc_auc"])
    mask = torch.tensor([True, True, False, True, True])
    assert of(task, LOGITS, LABELS, mask) == {"roc_auc": 1.0}
    several = multilabel("face", 2, metrics=["roc_auc"])
    outputs = torch.tensor([[1.0, 4.0], [2.0, 3.0], [3.0, 2.0], [0.0, 9.0]])
    targets = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    there = torch.tensor([[True, True], [True, True], [True, True], [False, False]])
    there[2, 0] = False
    # the first attribute on rows 0 and 1 (in order), the second on rows 0, 1 and 2 (in reverse)
    assert of(several, outputs, targets, there) == {"roc_auc": 0.5}


def test_a_metric_of_ones_own_sees_outputs_and_targets():
    largest = Metric("largest_error", lambda outputs, targets: float((outputs - targets).abs().max()), "lower")
    task = regression("stay", 1.0, metrics=[largest, "rmse"])
    assert of(task, torch.tensor([[1.0], [2.0]]), torch.tensor([1.5, 5.0]))["largest_error"] == 3.0


def test_directions():
    lower = {name for name, metric in METRICS.items() if metric.better == "lower"}
    assert lower == {"calibration_error", "rmse", "mae"}


def test_outputs_that_are_not_finite_have_no_metrics():
    task = classification("risk", 2, metrics=["roc_auc"])
    assert of(task, torch.full((5, 2), torch.nan), LABELS) == {}


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: classification("a", 2, metrics=["roc_auk"]), r"Unknown metric 'roc_auk'. Did you mean 'roc_auc'"),
        (lambda: classification("a", 2, metrics="roc_auc"), r"'a': `metrics` should be a list. Found 'roc_auc'"),
        (lambda: regression("a", 1.0, metrics=["rmse", "rmse"]), r"should name every metric once"),
        (lambda: regression("a", 1.0, metrics=[max]), r"a metric should be a name or a fedhv.Metric"),
        (
            lambda: Metric("accuracy", max, "higher"),
            r"should be text other than 'accuracy' and 'loss'.* Found 'accuracy'",
        ),
        (lambda: Metric(3, max, "higher"), r"name should be text .* Found 3\.$"),
        (lambda: Metric("own", max, "up"), r"`better` should be 'higher' or 'lower'. Found 'up'"),
        (
            lambda: of(classification("a", 2, metrics=["roc_auc"]), LOGITS, torch.ones(5, dtype=torch.int64)),
            r"Task 'a', metric 'roc_auc': expected test labels of both classes",
        ),
        (
            lambda: of(regression("a", 1.0, metrics=["roc_auc"]), LOGITS[:, 0], LOGITS[:, 1]),
            r"Task 'a', metric 'roc_auc': expected classes. Found real numbers",
        ),
        (
            lambda: of(classification("a", 2, metrics=["rmse"]), LOGITS, LABELS),
            r"Task 'a', metric 'rmse': expected real numbers. Found classes",
        ),
        (
            lambda: of(regression("a", 1.0, metrics=["r2"]), LOGITS[:, 0], torch.ones(5)),
            r"expected test targets that differ",
        ),
        (
            lambda: of(regression("a", 1.0, metrics=[Metric("own", lambda o, t: 1 / 0, "lower")]), LOGITS, LOGITS),
            r"Task 'a', metric 'own': expected a number.*ZeroDivisionError",
        ),
    ],
)
def test_mistakes_are_one_line(make, says):
    with pytest.raises(InputError, match=says) as caught:
        make()
    assert "\n" not in str(caught.value)


def small(metrics, one_class=False):
    draws = np.random.default_rng(0)
    x = draws.normal(size=(60, 3)).astype(np.float32)
    kind = np.zeros(60, np.int64) if one_class else (x[:, 0] > 0).astype(np.int64)
    stay = x[:, 1].copy()
    stay[::3] = np.nan
    tasks = [classification("kind", 2, metrics=metrics), regression("stay", 0.5, metrics=["rmse"] if metrics else [])]

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.shared = torch.nn.Linear(3, 4)
            self.heads = torch.nn.ModuleList([torch.nn.Linear(4, 2), torch.nn.Linear(4, 1)])

        def forward(self, inputs):
            return [head(torch.tanh(self.shared(inputs))) for head in self.heads]

    clients = [(x[k : k + 20], [kind[k : k + 20], stay[k : k + 20]]) for k in (0, 20)]
    return fedhv.Problem.from_clients(Net, tasks, clients, test=(x[40:], [kind[40:], stay[40:]]))


def test_an_evaluation_has_metrics_of_the_whole_test_set_whatever_the_chunk():
    problem = small(["roc_auc", "f1"])
    with Sequential(problem) as engine:
        theta = flatten(problem.model())
        whole = engine.evaluate(theta)
        engine.chunk.size = 7
        parts = engine.evaluate(theta)
        outputs = engine.client.network(theta, problem.test.inputs, training=False)
    for task, other in zip(whole.tasks, parts.tasks, strict=True):  # outputs of other chunks may round differently
        assert task.metrics == pytest.approx(other.metrics, rel=1e-6)
    mask = problem.test.labelled[1]
    error = (outputs[1][mask, 0] - problem.test.targets[1][mask]).square().mean().sqrt()
    assert whole.tasks[1].metrics["rmse"] == pytest.approx(error.item(), rel=1e-5)
    assert list(whole.tasks[0].metrics) == ["roc_auc", "f1"]


def test_histories_and_summaries_hold_metrics_only_where_tasks_have_them(tmp_path):
    short = {"rounds": 2, "engine": "sequential", "override": ["federation.participants=2"]}
    run = fedhv.run(small(["roc_auc"]), "uniform", out=tmp_path / "run", **short)
    assert [task.as_dict() for task in run.summary.tasks] == run.history[-1]["evaluation"]["tasks"]
    assert run.summary.tasks[0].metrics["roc_auc"] > 0
    plain = fedhv.run(small([]), "uniform", **short)
    assert set(plain.summary.tasks[0].as_dict()) == {"name", "accuracy", "loss"}
    # metrics only look: the run itself is the same, bit for bit
    assert replace(run.summary.tasks[0], metrics={}) == plain.summary.tasks[0]
    again = fedhv.run(small(["roc_auc"]), "uniform", out=tmp_path / "run", resume=True, **short)
    assert again.summary == run.summary


def test_a_test_set_that_a_metric_cannot_judge_is_found_before_the_run(tmp_path):
    with pytest.raises(InputError, match=r"Task 'kind', metric 'roc_auc': expected test labels of both classes"):
        fedhv.run(small(["roc_auc"], one_class=True), "uniform", rounds=1, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_task_by_hand_takes_metrics():
    task = Task("own", lambda o, t: (o[:, 0] - t) ** 2, lambda o, t: (o[:, 0] > t).float(), metrics=["mae"])
    assert of(task, torch.zeros(3, 1), torch.tensor([1.0, 2.0, 3.0])) == {"mae": 2.0}
