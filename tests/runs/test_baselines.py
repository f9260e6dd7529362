"""Baselines: single tasks, clients alone, one pool."""

import numpy as np
import pytest
import torch
from torch import nn

import fedhv
from fedhv import InputError, Problem, classification, regression
from fedhv.runs.baselines import alone, mean_score, pooled, run_baseline, single_tasks

CHANGES = ["federation.participants=2", "training.rounds=3", "training.local_steps=4", "training.batch_size=5"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(3, 4)
        self.heads = nn.ModuleList([nn.Linear(4, 2), nn.Linear(4, 1)])

    def forward(self, inputs):
        return [head(torch.tanh(self.shared(inputs))) for head in self.heads]


def problem():
    draws = np.random.default_rng(0)

    def one(n, stay=True):
        x = draws.normal(size=(n, 3)).astype(np.float32)
        return x, [(x[:, 0] > 0).astype(np.int64), x[:, 1] if stay else None]

    tasks = [classification("kind", 2, metrics=["roc_auc"]), regression("stay", 0.5, metrics=["rmse"])]
    return Problem.from_clients(Net, tasks, [one(12), one(30, stay=False), one(8)], test=one(40))


def baseline(name, **more):
    return run_baseline(name, problem(), override=[*CHANGES, *more.pop("override", [])], **more)


def test_pooled_is_one_client_with_everything():
    (made,) = pooled(problem())
    assert made.clients.sizes.tolist() == [50]


def test_pooled_is_a_federation_of_one():
    found = baseline("pooled")
    run = fedhv.run(
        pooled(problem())[0],
        fedhv.Uniform(server_lr=1.0),
        override=[*CHANGES, "federation.participants=1"],
        engine="sequential",
    )
    assert found.tasks == run.summary.tasks
    assert found.runs == 1


def test_single_tasks_leave_out_clients_without_labels():
    kind, stay = single_tasks(problem())
    assert (len(kind.clients), len(stay.clients)) == (3, 2)
    assert [task.name for task in stay.tasks] == ["stay"]
    whole, part = problem().model(), stay.model()
    part.whole.load_state_dict(whole.state_dict())
    x = torch.randn(4, 3)
    assert torch.equal(part(x)[0], whole(x)[1])


def test_single_task_training_equals_a_run_with_that_task_alone():
    found = baseline("single-task")
    assert [task.name for task in found.tasks] == ["kind", "stay"]
    run = fedhv.run(single_tasks(problem())[1], "uniform", override=CHANGES, engine="sequential")
    assert found.tasks[1] == run.summary.tasks[0]


def test_local_is_the_mean_over_clients_of_training_alone():
    found = baseline("local")
    runs = [
        fedhv.run(
            each,
            fedhv.Uniform(server_lr=1.0),
            override=[*CHANGES, "federation.participants=1"],
            engine="sequential",
        )
        for each in alone(problem())
    ]
    assert found.runs == len(runs) == 3
    mean = np.mean([run.summary.tasks[0].metrics["roc_auc"] for run in runs])
    assert found.tasks[0].metrics["roc_auc"] == pytest.approx(mean)


def test_a_task_that_a_client_lacks_stays_untrained_there():
    made = alone(problem())[1]
    run = fedhv.run(made, "uniform", override=[*CHANGES, "federation.participants=1"], engine="sequential")
    other = fedhv.run(
        made, "uniform", override=[*CHANGES, "federation.participants=1", "training.rounds=1"], engine="sequential"
    )
    assert torch.equal(run.state_dict["heads.1.weight"], other.state_dict["heads.1.weight"])
    assert not torch.equal(run.state_dict["heads.0.weight"], other.state_dict["heads.0.weight"])


def test_the_servers_rate_does_not_reach_clients_that_have_no_server():
    assert baseline("pooled", override=["methods.uniform.server_lr=0.1"]) == baseline("pooled")


def test_means():
    from fedhv.protocol.evaluation import TaskScore

    found = mean_score([TaskScore("a", 50.0, 1.0, {"r2": 0.5}), TaskScore("a", 100.0, 3.0, {"r2": -0.1})])
    assert (found.accuracy, found.loss) == (75.0, 2.0)
    assert found.metrics["r2"] == pytest.approx(0.2)


def test_unknown_baselines_are_refused():
    with pytest.raises(InputError, match=r"Unknown baseline 'pool'. Did you mean 'pooled'"):
        run_baseline("pool", problem())
