"""How long runs will take: measured where it can be, else counted in gradient steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedhv.engines import Choice
from fedhv.paper import Options, Selection, planned_runs, reproduce
from fedhv.paper.estimate import _cores, estimated, step_seconds
from fedhv.runs.config import load_setting

CPU = Choice("sequential", torch.device("cpu"), "float32")


@pytest.mark.parametrize(
    ("method", "change", "steps"),
    [
        ("uniform", "training.rounds=1", 20 * 10),
        ("fsmgda", "training.rounds=1", 20 * 2 * 10),
        ("fedcmoo", "training.rounds=1", 20 * (2 + 9)),
        ("fedhv", "methods.fedhv.report='all'", 20 * (10 + 600 / 300)),
        ("fedhv", "methods.fedhv.report=1", 20 * (10 + 100 / 300)),
    ],
)
def test_steps_reports_and_evaluations_are_counted(monkeypatch, method, change, steps):
    monkeypatch.setattr("fedhv.paper.estimate.step_seconds", lambda benchmark, batch, device: 1.0)
    overrides = ["training.batch_size=100", "training.local_steps=10", "evaluation.every=4", change]
    evaluation = 10_000 / 300 / 4  # a third of a step of 100 for every 100 examples, every fourth round
    assert estimated(load_setting("multimnist", overrides), method, CPU) == pytest.approx(steps + evaluation)


def test_a_step_is_timed_and_a_benchmark_of_unknown_shape_is_not(setting_file):
    threads = torch.get_num_threads()
    assert step_seconds("mnist-fmnist", 4, "cpu") > 0
    assert torch.get_num_threads() == threads
    assert estimated(load_setting(str(setting_file)), "uniform", CPU) is None


@pytest.mark.parametrize(
    ("engine", "jobs", "cores"),
    [("parallel", None, 4), ("parallel", 1, 4), ("parallel", 3, 3), ("sequential", 1, 1), ("sequential", 9, 4),
     ("stacked", None, 1)],
)  # fmt: skip
def test_time_is_divided_by_the_cores_that_are_busy(monkeypatch, engine, jobs, cores):
    monkeypatch.setattr("fedhv.paper.estimate.usable_cores", lambda: 4)
    choice = Choice(engine, torch.device("cpu"), "float32")
    assert _cores(choice, Options(Path("r"), jobs=jobs, engine=engine)) == cores


@pytest.mark.usefixtures("six")
def test_measured_times_come_first_and_those_of_another_machine_do_not_count(monkeypatch, tmp_path):
    monkeypatch.setattr("fedhv.paper.estimate.estimated", lambda setting, method, choice: 1000.0)
    options = Options(tmp_path / "r", jobs=1, engine="sequential")
    reproduce("main", options, Selection(("multimnist",), ("uniform",), (0,)))
    wanted = Selection(("multimnist",), ("uniform", "fsmgda"), (0, 1))

    def seconds():
        return {each.name.rpartition("/")[2]: each.seconds for each in planned_runs("main", options, wanted)}

    found = seconds()
    assert 0 < found["uniform-seed1"] < 2000.0
    assert (found["uniform-seed0"], found["fsmgda-seed0"]) == (0.0, 2000.0)
    (config,) = options.out.rglob("config.toml")
    for was, other in (('device = "cpu"', 'device = "cuda"'), ('torch = "', 'torch = "0.')):
        text = config.read_text()
        assert was in text
        config.write_text(text.replace(was, other))
        assert seconds()["uniform-seed1"] == 2000.0
        config.write_text(text)
