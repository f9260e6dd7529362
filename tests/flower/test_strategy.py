"""The strategy in a ServerApp of one's own: resumes, reports, and the example that the repository ships."""

from __future__ import annotations

import builtins
import importlib
import sys
import time
import tomllib
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from flwr.app import ConfigRecord, Context, RecordDict
from problems import everything_random
from runs_on_disk import records

import fedhv
from fedhv import FedCMOO, FedHV, Uniform
from fedhv.flower import Patience, Strategy, client_app
from fedhv.flower.server import serve
from fedhv.runs.record import read_finished
from fedhv.runs.resolve import resolve
from fedhv.support.errors import Diverged, FedHVError, InputError
from flower.local_grid import LocalGrid

PATIENCE = Patience(reply=2, nodes=2, again=1)
OVERRIDE = ["training.rounds=5", "training.batch_size=8", "training.local_steps=2", "federation.participants=3"]
EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"


def grid(problem):
    return LocalGrid(client_app(lambda context: problem, device="cpu"), {k + 1: k for k in range(5)})


class Killed(BaseException):
    """The end of the process, as far as a test can have one."""


@pytest.mark.parametrize("method", [FedHV(reference=(9.0, 9.0)), FedCMOO()], ids=lambda method: method.label)
def test_a_strategy_that_is_killed_goes_on_from_its_last_round(method, tmp_path):
    problem = everything_random()

    def strategy(folder):
        return Strategy(method, problem, override=OVERRIDE, patience=PATIENCE, folder=tmp_path / folder, seed=4)

    def kill(server_round, arrays):
        if server_round == 3:
            raise Killed

    began = time.perf_counter()
    first = strategy("killed")
    with pytest.raises(Killed):
        first.start(grid(problem), evaluate_fn=kill)
    second = strategy("killed")
    assert second.rounds_left == 2
    second.start(grid(problem))
    whole = strategy("whole")
    whole.start(grid(problem))
    killed, steady = read_finished(tmp_path / "killed"), read_finished(tmp_path / "whole")
    assert all(torch.equal(killed.state_dict[name], value) for name, value in steady.state_dict.items())
    assert [record["weights"] for record in killed.history] == [record["weights"] for record in steady.history]
    seconds = [record["seconds"] for record in killed.history]
    assert min(seconds) > 0
    assert sum(seconds) < time.perf_counter() - began


def test_a_schedule_knows_all_rounds_of_a_strategy():
    problem, method = everything_random(), Uniform(local_lr=1.0)
    override = [*OVERRIDE, "training.schedule.kind=cosine", "training.schedule.factor=0.0"]
    strategy = Strategy(method, problem, override=override, patience=PATIENCE)
    strategy.start(grid(problem))
    there = [played.evaluation.mean_loss for played in strategy.execution.history.rounds]
    here = [played.evaluation.mean_loss for played in fedhv.run(problem, method, override=override).rounds]
    assert there == pytest.approx(here, rel=1e-4)


def test_a_strategy_has_the_rates_of_its_setting():
    setting, problem = resolve("digits", ["methods.uniform.local_lr=0.125", "methods.uniform.server_lr=0.75"])
    for method in ("uniform", Uniform()):
        assert Strategy(method, problem, setting=setting).job.plan.local.learning_rate == 0.125
    strategy = Strategy(Uniform(local_lr=0.2), problem, setting=setting)
    assert (strategy.job.plan.local.learning_rate, strategy.job.method.server_lr) == (0.2, 0.75)
    with pytest.raises(InputError, match=r"A method should be a name or an object such as FedHV\(\)"):
        Strategy(Uniform, problem)
    with pytest.raises(InputError, match=r"`methods\.uniform\.local_lr` would be ignored"):
        Strategy(Uniform(), problem, override=["methods.uniform.local_lr=0.3"])


def test_a_loop_with_more_rounds_than_the_run_is_told_how_many_are_left():
    problem = everything_random()
    strategy = Strategy(Uniform(), problem, override=[*OVERRIDE, "training.rounds=1"], patience=PATIENCE)
    nodes, arrays = grid(problem), strategy.initial_arrays()
    for number in (1, 2):
        with pytest.raises(InputError, match="has 1 round, and all are done") if number == 2 else nullcontext():
            messages = strategy.configure_train(number, arrays, ConfigRecord(), nodes)
            arrays, _ = strategy.aggregate_train(number, nodes.send_and_receive(messages))
            strategy.evaluate(number, arrays)
    assert strategy.execution.done == 1


def test_a_strategy_refuses_what_has_no_effect_on_a_problem_with_clients():
    with pytest.raises(InputError, match=r"`federation\.alpha` has no effect"):
        Strategy(Uniform(), everything_random(), override=["federation.alpha=0.9"])


def test_a_test_loss_that_runs_away_stops_a_strategy_too(tmp_path):
    problem, override = everything_random(), [*OVERRIDE, "evaluation.explosion=1.5"]
    strategy = Strategy(
        Uniform(local_lr=20.0), problem, override=override, patience=PATIENCE, folder=tmp_path / "run", seed=4
    )
    with pytest.raises(Diverged, match=r"`evaluation.explosion`"):
        strategy.start(grid(problem))
    assert 1 <= strategy.execution.done < 5


def test_a_run_of_another_kind_in_the_folder_is_refused(tmp_path):
    problem = everything_random()
    Strategy(FedCMOO(), problem, override=OVERRIDE, folder=tmp_path / "run")._stack.close()
    with pytest.raises(InputError, match="another run"):
        Strategy(FedHV(reference=(9.0, 9.0)), problem, override=OVERRIDE, folder=tmp_path / "run")


def test_two_servers_cannot_write_one_folder(tmp_path):
    problem = everything_random()
    first = Strategy(FedCMOO(), problem, override=OVERRIDE, folder=tmp_path / "run")
    with pytest.raises(InputError, match="Another process"):
        Strategy(FedCMOO(), problem, override=OVERRIDE, folder=tmp_path / "run")
    first.finish()


def test_a_strategy_that_fails_leaves_its_folder_to_the_next(tmp_path):
    problem = everything_random()

    def strategy():
        return Strategy(Uniform(), problem, override=OVERRIDE, patience=PATIENCE, folder=tmp_path / "run")

    broken = grid(problem)
    broken.trouble = lambda message, k: RuntimeError("no") if message.metadata.message_type == "train" else None
    first = strategy()
    with pytest.raises(FedHVError, match="its app raised: no"):
        first.start(broken)
    second = strategy()
    second.start(grid(problem))
    assert second.execution.done == 5


def test_the_report_reads_a_run_from_flower(command, tmp_path):
    problem = everything_random()
    for name, method in (("fedhv-seed0", FedHV(reference=(9.0, 9.0))), ("fedcmoo-seed0", FedCMOO())):
        serve(grid(problem), problem, method, out=tmp_path / "study" / name, override=OVERRIDE, patience=PATIENCE)
    done = command("report", "study", "--no-figures")
    assert done.code == 0, done.err
    assert "FedCMOO" in done.out
    assert (tmp_path / "study" / "report" / "index.html").exists()


def test_a_setting_that_is_calibrated_elsewhere_needs_its_reference():
    with pytest.raises(InputError, match="--reference"):
        serve(grid(everything_random()), everything_random(), "fedhv", override=["calibration.setting=digits"])


def test_the_example_runs_with_its_own_apps(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    app = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    apps = {}
    for kind, reference in app["components"].items():
        module, _, name = reference.partition(":")
        apps[kind] = getattr(importlib.import_module(module), name)
    config = app["config"] | {"rounds": 30, "out": str(tmp_path / "run"), "reply-seconds": 5.0}
    nodes = LocalGrid(apps["clientapp"], {10 + k: k for k in range(config["nodes"])}, device="cpu")
    apps["serverapp"](nodes, Context(1, 1, {}, RecordDict(), config))
    result = read_finished(tmp_path / "run")
    before, after = (
        [task["loss"] for task in record["evaluation"]["tasks"]]
        for record in (records(tmp_path / "run")[4], records(tmp_path / "run")[-1])
    )
    assert all(late < early for early, late in zip(before, after, strict=True))
    assert result.worst_accuracy > 60
    for module in [name for name in sys.modules if name.startswith("twotasks")]:
        del sys.modules[module]


def test_without_flower_one_line_says_what_to_install(command, monkeypatch):
    for module in [name for name in sys.modules if name.split(".")[0] == "flwr" or name.startswith("fedhv.flower")]:
        monkeypatch.delitem(sys.modules, module)
    real = builtins.__import__

    def missing(name, *rest):
        if name.split(".")[0] == "flwr":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    outcome = command("flower", "up", "digits")
    assert outcome.code == 1
    assert "pip install 'fedhv[flower]'" in outcome.err


def test_without_the_accountant_one_line_says_what_to_install(monkeypatch):
    from fedhv.protocol.privacy_cost import spent
    from fedhv.protocol.report_privacy import ReportPrivacy

    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(FedHVError, match=r"fedhv\[privacy\]"):
        spent(ReportPrivacy(1.0, 1.0), rounds=3, participants=1, clients=2)
