"""The programs in examples/ run; here with few rounds, as they stand in less than two minutes."""

from __future__ import annotations

import importlib.util
import re
import sys
from types import SimpleNamespace

import pytest
import torch

import fedhv
from docs.pages import ROOT

EXAMPLES = ROOT / "examples"
OURS = sorted(path for path in EXAMPLES.rglob("*.py") if "flower" not in path.parts)


def load(path, monkeypatch):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_it_says_how_to_run_it(path):
    text = path.read_text(encoding="utf-8")
    assert text.startswith('"""')
    assert re.search(r"^ *(python examples/|fedhv )", text.split('"""')[1], flags=re.MULTILINE)


def test_centralised_weights_help_the_neglected_task(monkeypatch):
    example = load(EXAMPLES / "centralised_weights.py", monkeypatch)
    monkeypatch.setattr(example, "EPOCHS", 6)
    equal, balanced = example.train(balanced=False), example.train(balanced=True)
    assert balanced[1] > equal[1]


def test_tabular_three_tasks(monkeypatch):
    example = load(EXAMPLES / "tabular_three_tasks.py", monkeypatch)
    runs = example.main(rounds=2)
    assert {run.method for run in runs} == {"fedhv", "uniform", "fsmgda", "fedcmoo"}
    assert [task.name for task in runs[0].tasks] == ["course", "sex", "bmi"]
    assert len(set(example.SIZES)) == len(example.SIZES)  # unequal clients


@pytest.mark.slow
def test_hospitals_come_to_a_comparison_and_an_exported_model(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    example = load(EXAMPLES / "hospitals.py", monkeypatch)
    study = example.main(rounds=2, patients=600, seeds=(0,))
    assert [run.method for run in study] == ["fedhv", "uniform", "single-task", "local", "pooled"]
    assert [task.main.name for task in study[0].tasks] == ["roc_auc", "f1", "rmse"]
    assert study[0].selection.keep == "best"
    assert "Δm" in study.table()
    assert (tmp_path / "runs" / "hospitals" / "fedhv-seed0" / "export" / "model.pt2").exists()


def test_a_transformer_on_text_ignores_padding(monkeypatch):
    pytest.importorskip("datasets")
    example = load(EXAMPLES / "text_transformer.py", monkeypatch)
    make = example.notes
    monkeypatch.setattr(example, "notes", lambda count, seed: make(count // 8, seed, clients=4))
    run = fedhv.run(example.problem(), "uniform", rounds=1, participants=2, local_steps=1)
    assert [task.name for task in run.tasks] == ["subject", "urgent"]
    assert set(run.tasks[1].metrics) == {"roc_auc"}
    model = fedhv.load_model(run)
    ids, there = torch.tensor([[3, 4, 5]]), torch.ones(1, 3, dtype=torch.bool)
    padded = model(torch.nn.functional.pad(ids, (0, 4)), torch.nn.functional.pad(there, (0, 4)))
    torch.testing.assert_close(padded, model(ids, there))


def test_a_run_is_sent_to_mlflow_without_its_calibration(monkeypatch):
    logged = []
    log = SimpleNamespace(log_metrics=lambda metrics, step: logged.append((step, metrics)))
    monkeypatch.setitem(sys.modules, "mlflow", log)
    example = load(EXAMPLES / "mlflow_tracking.py", monkeypatch)
    changes = ["calibration.rounds=2", "evaluation.every=1", "training.local_steps=1", "federation.participants=2"]
    run = fedhv.run("digits", rounds=2, override=changes, observer=example.Tracker())
    assert [step for step, _ in logged] == [1, 2]
    assert logged[-1][1]["tasks/faint/accuracy"] == run.tasks[1].accuracy
    assert logged[-1][1]["weights/faint"] == run.rounds[-1].weights[1]
    assert len((EXAMPLES / "mlflow_tracking.py").read_text().splitlines()) <= 25


@pytest.mark.parametrize("engine", ["sequential", "parallel", "stacked"])
def test_a_new_request_is_the_packages_fedprox_on_every_engine(engine, monkeypatch):
    example = load(EXAMPLES / "new_request.py", monkeypatch)
    options = {"rounds": 2, "override": ["training.local_steps=3", "federation.participants=2"], "engine": engine}
    methods = (example.Near(local_lr=0.3), fedhv.FedProx(local_lr=0.3, mu=0.1), fedhv.Uniform(local_lr=0.3))
    own, ours, plain = (fedhv.run("digits", method, **options) for method in methods)
    assert own.tasks == ours.tasks
    assert own.tasks != plain.tasks


def test_a_new_method_beside_the_others(monkeypatch, capsys):
    example = load(EXAMPLES / "new_method.py", monkeypatch)
    problem, tried = (
        fedhv.load_setting("digits", ["training.local_steps=1", "evaluation.every=0"]),
        example.SlowestFirst(),
    )
    result = fedhv.run(problem, tried, rounds=2, override=["federation.participants=2"])
    assert result.method == "slowest-first"
    assert sum(result.weights) == pytest.approx(1)
    example.show([result])
    assert "slowest-first" in capsys.readouterr().out


def test_a_benchmark_of_ones_own_from_the_command_line(command, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES / "custom_benchmark"))
    setting = EXAMPLES / "custom_benchmark" / "questions.toml"
    done = command("run", setting, "--rounds", 1, "--set", "calibration.rounds=1", "--out", "run")
    assert done.code == 0, done.err
    for task in ("digit", "odd", "prime", "loop"):
        assert task in done.out
    sys.modules.pop("questions", None)
