"""Baselines: single tasks, clients alone, one pool."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import fedhv
import fedhv.runs.baselines.executing
from fedhv import Clients, Examples, InputError, Interrupted, Problem, classification, regression
from fedhv.engines import choose_engine
from fedhv.runs.baselines import run_baseline
from fedhv.runs.baselines.methods import Local, SingleTask, baseline_method
from fedhv.runs.baselines.parts import part_job, parts, pooled
from fedhv.runs.baselines.scores import mean_score
from fedhv.runs.defaults import BASELINES
from fedhv.runs.resolve import resolve, setting_of

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


def test_pooled_is_a_federation_of_one():
    together = pooled(problem())
    assert together.clients.sizes.tolist() == [50]
    found = baseline("pooled")
    run = fedhv.run(
        together,
        fedhv.Uniform(server_lr=1.0),
        override=[*CHANGES, "federation.participants=1"],
        engine="sequential",
    )
    assert found.tasks == run.summary.tasks
    assert found.runs == 1


class First(nn.Module):
    """The model with its first output only."""

    def __init__(self):
        super().__init__()
        self.whole = Net()

    def forward(self, inputs):
        return self.whole(inputs)[:1]


def test_single_task_training_is_that_of_a_problem_with_one_task():
    found = baseline("single-task", override=["baselines.single-task.local_lr=0.2"])
    assert [task.name for task in found.tasks] == ["kind", "stay"]
    whole = problem()
    train, test = (Examples(each.inputs, each.targets[:1]) for each in (whole.train, whole.test))
    one = Problem("one", First, whole.tasks[:1], train, test, clients=whole.clients)
    run = fedhv.run(one, fedhv.Uniform(local_lr=0.2), override=CHANGES, engine="sequential")
    assert found.tasks[0].loss == pytest.approx(run.summary.tasks[0].loss, rel=1e-5)
    assert found.tasks[0].metrics == pytest.approx(run.summary.tasks[0].metrics)


def test_single_tasks_leave_out_clients_without_labels():
    kind, stay = parts("single-task", problem(), SingleTask())
    assert kind.among is None
    assert stay.among == (0, 2)
    assert stay.judged == (1,)


def test_local_is_the_mean_over_clients_of_training_alone():
    whole = problem()
    found = baseline("local")
    used = parts("local", whole, baseline_method("local", setting_of(whole), 2))
    here, _ = resolve(whole, CHANGES)
    runs = [part_job(part, here, whole, 0, choose_engine("sequential", "cpu")).execute() for part in used]
    assert found.runs == len(runs) == 3
    mean = np.mean([run.summary.tasks[0].metrics["roc_auc"] for run in runs])
    assert found.tasks[0].metrics["roc_auc"] == pytest.approx(mean)
    # Client 0 alone in a problem of its own draws the same minibatches.
    own = replace(whole, clients=Clients.of([whole.clients[0]]))
    alone = fedhv.run(
        own, fedhv.Uniform(server_lr=1.0), override=[*CHANGES, "federation.participants=1"], engine="sequential"
    )
    assert alone.summary.tasks == runs[0].summary.tasks


def test_a_task_that_a_client_lacks_stays_untrained_there():
    whole = problem()
    part = parts("local", whole, Local())[1]
    long, short = (
        part_job(part, resolve(whole, [*CHANGES, f"training.rounds={n}"])[0], whole, 0, choose_engine()).execute()
        for n in (3, 1)
    )
    assert torch.equal(long.state_dict["heads.1.weight"], short.state_dict["heads.1.weight"])
    assert not torch.equal(long.state_dict["heads.0.weight"], short.state_dict["heads.0.weight"])


def test_rates_are_the_settings_unless_others_are_given():
    setting = fedhv.load_setting("star")
    assert baseline_method("single-task", setting, 8).local_lr == 0.1
    tox = fedhv.load_setting("tox21")
    assert baseline_method("pooled", tox, 12).local_lr == 3.0
    digits = fedhv.load_setting("digits")
    uniform = digits.method("uniform")
    single = baseline_method("single-task", digits, 2)
    assert (single.local_lr, single.server_lr) == (uniform.local_lr / 2, uniform.server_lr)
    assert baseline_method("local", digits, 2).server_lr == 1.0
    own = setting_of(problem())
    assert baseline_method("local", own, 2, fedhv.FedHV(local_lr=0.07)).local_lr == 0.07
    adam = fedhv.load_setting("digits", ["training.optimiser=adam"])
    assert baseline_method("single-task", adam, 2).local_lr == uniform.local_lr


# --- in a study -------------------------------------------------------------------------------------------


def study(folder, names=BASELINES, **more):
    changes = [*CHANGES, *more.pop("override", [])]
    method = fedhv.Uniform(local_lr=0.1)
    return fedhv.compare(problem(), [method], [0, 1], baselines=names, override=changes, out=folder, **more)


def test_a_study_has_baselines_as_runs(tmp_path):
    runs = study(tmp_path / "study", engine="sequential")
    assert [(run.method, run.seed) for run in runs] == [
        ("uniform", 0), ("uniform", 1), *((name, seed) for seed in (0, 1) for name in BASELINES)
    ]  # fmt: skip
    alone = baseline("local", seed=1, override=["baselines.local.local_lr=0.1"])
    assert runs[-2].summary.tasks == alone.tasks
    read = fedhv.read_run(tmp_path / "study" / "single-task-seed0")
    assert read.summary == runs[2].summary
    assert read.summary.communication.uplink_bytes > 0
    assert fedhv.read_run(tmp_path / "study" / "pooled-seed0").state_dict.keys() == runs[0].state_dict.keys()
    with pytest.raises(InputError, match="The baseline 'local' has no model of its own but one for every client"):
        _ = runs[-2].state_dict


def test_baselines_go_beside_methods_that_follow_preferences(tmp_path):
    preferences = ["preferences.kind=1", "preferences.stay=3"]
    options = {"baselines": BASELINES, "out": tmp_path, "engine": "sequential"}
    runs = fedhv.compare(problem(), ["power"], [0], override=[*CHANGES, *preferences], **options)
    assert [run.method for run in runs] == ["power", *BASELINES]
    assert runs[1].tasks == baseline("single-task").tasks


def test_stacked_baselines_are_those_of_the_sequential_engine(tmp_path):
    here, there = (study(tmp_path / name, engine=name, device="cpu") for name in ("sequential", "stacked"))
    for a, b in zip(here, there, strict=True):
        assert [task.loss for task in a.tasks] == pytest.approx([task.loss for task in b.tasks], rel=1e-4)


def test_an_interrupted_baseline_continues_with_the_parts_that_are_left(tmp_path, monkeypatch):
    monkeypatch.setattr(fedhv.runs.baselines.executing, "AT_A_TIME", 1)
    whole = study(tmp_path / "whole", ["local"], engine="sequential")
    executed = []
    before = fedhv.runs.baselines.executing.execute_together

    def counted(jobs, *more):
        executed.extend(job.part for job in jobs)
        if len(executed) == 2:
            raise Interrupted("now")
        return before(jobs, *more)

    monkeypatch.setattr(fedhv.runs.baselines.executing, "execute_together", counted)
    with pytest.raises(Interrupted):
        study(tmp_path / "broken", ["local"], engine="sequential")
    again = study(tmp_path / "broken", ["local"], engine="sequential")
    assert executed == ["client-0", "client-1", "client-1", "client-2", "client-0", "client-1", "client-2"]
    assert [run.tasks for run in again] == [run.tasks for run in whole]
    study(tmp_path / "broken", ["local"], engine="sequential")
    assert len(executed) == 7


def test_a_study_without_a_folder_has_baselines_too():
    runs = fedhv.compare(problem(), [fedhv.Uniform()], [0], baselines=["single-task"], override=CHANGES)
    assert [run.method for run in runs] == ["uniform", "single-task"]


def test_baselines_choose_their_models_on_validation_too(tmp_path):
    changes = ["federation.validation=0.3", "evaluation.keep=best"]
    single, local, pool = study(tmp_path / "study", engine="sequential", override=changes)[2:5]
    assert single.selection.keep == "best"
    assert [each.task for each in single.selection.over_clients] == ["kind", "stay"]
    over = {each.task: each for each in local.selection.over_clients}
    assert over["stay"].clients == 2
    part = fedhv.read_run(tmp_path / "study" / "local-seed0" / "parts" / "client-1")
    assert [each.task for each in part.selection.over_clients] == ["kind"], "the client has no label of the other task"
    assert {round.evaluation is None for round in part.rounds} == {False}
    assert pool.selection.over_clients == ()


def test_a_pool_says_which_round_it_kept(tmp_path):
    still = ["baselines.pooled.local_lr=1e-30", "baselines.single-task.local_lr=1e-30"]  # all rounds are equal
    changes = ["federation.validation=0.3", "evaluation.keep=best", "evaluation.patience=1", *still]
    *_, single, pool = fedhv.compare(
        problem(),
        ["uniform"],
        [0],
        baselines=["single-task", "pooled"],
        override=[*CHANGES, *changes],
        engine="sequential",
    )
    assert (pool.selection.round, pool.selection.stopped, pool.summary.rounds) == (1, "patience", 2)
    assert pool.selection.score is not None
    assert single.selection.round == 1


def test_a_client_alone_may_hold_out_too_little_for_a_metric():
    changes = ["federation.validation=0.05", "evaluation.keep=best"]
    runs = fedhv.compare(problem(), [fedhv.Uniform()], [0], baselines=["local"], override=[*CHANGES, *changes[:1]])
    assert {each.score for each in runs[1].selection.over_clients if each.task == "kind"} == {"accuracy"}
    used = parts("local", resolve(problem(), changes)[1], Local())
    here, whole = resolve(problem(), [*CHANGES, *changes])
    assert part_job(used[0], here, whole, 0, choose_engine()).execute().selection.keep == "best"


def test_other_rates_are_another_run(tmp_path):
    study(tmp_path / "study", ["pooled"], engine="sequential")
    with pytest.raises(InputError, match=r"`setting\.methods\.pooled\.local_lr` was 0\.1 and is now 0\.5"):
        study(tmp_path / "study", ["pooled"], engine="sequential", override=["baselines.pooled.local_lr=0.5"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["baselines.pool.local_lr=0.1"], "Unknown baseline 'pool'. Did you mean 'pooled'"),
        (["baselines.local.rate=0.1"], "Unknown key of `baselines.local` 'rate'"),
        (["baselines.local.local_lr=-1"], "`baselines.local.local_lr` should be positive. Found -1"),
    ],
)
def test_bad_rates_are_one_line(changes, said):
    with pytest.raises(InputError) as caught:
        fedhv.compare(problem(), ["uniform"], [0], baselines=["local"], override=[*CHANGES, *changes])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_means():
    from fedhv.protocol.evaluation import TaskScore

    found = mean_score([TaskScore("a", 50.0, 1.0, {"r2": 0.5}), TaskScore("a", 100.0, 3.0, {"r2": -0.1})])
    assert (found.accuracy, found.loss) == (75.0, 2.0)
    assert found.metrics["r2"] == pytest.approx(0.2)


def test_unknown_baselines_are_refused():
    with pytest.raises(InputError, match=r"Unknown baseline 'pool'. Did you mean 'pooled'"):
        run_baseline("pool", problem())
