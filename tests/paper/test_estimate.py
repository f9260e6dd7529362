"""How long runs will take: measured where it can be, else extrapolated from what methods ask of their clients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedhv.engines import Choice, Sequential
from fedhv.methods.base import takes_reference, with_reference
from fedhv.paper import Options, Selection, extrapolate, rehearse, reproduce
from fedhv.paper.estimate import _workers
from fedhv.paper.extrapolate import FORWARD, Pace, extrapolated, pace
from fedhv.protocol.client import Client
from fedhv.runs.config import load_setting
from fedhv.runs.history import read_history
from fedhv.runs.random_images import random_problem
from fedhv.simulation.rounds import simulate

CPU = Choice("sequential", torch.device("cpu"), "float32")
SMALL = [
    "federation.clients=3", "federation.participants=2", "federation.samples_per_client=[8, 8, 8]", "training.rounds=1",
    "training.batch_size=4", "training.local_steps=3",
]  # fmt: skip


@pytest.mark.parametrize("report", ["1", "'all'"])
@pytest.mark.parametrize("method", ["uniform", "fsmgda", "fedcmoo", "fedhv"])
def test_what_is_counted_is_what_clients_do(monkeypatch, method, report):
    """A round is played, and its gradients and forward passes counted where they happen."""
    setting = load_setting("digits", [*SMALL, f"methods.fedhv.report={report}"])
    steps, examples, losses = [], [], Client.example_losses

    def counting(self, theta, batch, *, training):
        (steps if training else examples).append(len(batch))
        return losses(self, theta, batch, training=training)

    monkeypatch.setattr(Client, "example_losses", counting)
    chosen = setting.method(method)
    if takes_reference(chosen):
        chosen = with_reference(chosen, (1000.0, 1000.0))
    problem = random_problem(setting, test=10)
    list(simulate(Sequential(problem), chosen, setting.plan(chosen, seed=0)))
    evaluation = 1_440 * 0.001  # the benchmark's test set, after the one round
    found = extrapolated(setting, method, Pace(step=1.0, forward=0.001))
    assert found == pytest.approx(len(steps) + sum(examples) * 0.001 + evaluation)


def test_evaluations_come_at_the_settings_rhythm_and_only_for_what_is_left():
    setting = load_setting("multimnist")  # 200 rounds of 20 clients, evaluated every third and in the end
    parts = Pace(step=0.0, forward=1.0)
    assert extrapolated(setting, "uniform", parts) == 67 * 10_000
    assert extrapolated(setting, "uniform", parts, done=197) == 2 * 10_000
    assert extrapolated(setting, "fedhv", parts, done=197) == 2 * 10_000 + 3 * 20 * 600


def test_steps_and_forward_passes_are_timed(monkeypatch):
    monkeypatch.setattr(extrapolate, "SECONDS", 0.05)
    threads = torch.get_num_threads()
    found = pace(load_setting("mnist-fmnist"), CPU)
    assert found is not None
    assert 0 < found.forward < found.step < 10
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(("seconds", "part"), [(1e-6, 32), (0.1 * FORWARD, 2), (100.0, 1)])
def test_of_a_slow_models_minibatch_a_part_is_timed(monkeypatch, seconds, part):
    seen, training = [], Client.local_training

    def watched(self, theta, weights, cohort, k):
        seen.append(cohort.local.batch_size)
        return training(self, theta, weights, cohort, k)

    def timed(call, engine, budget):
        call()
        return seconds

    monkeypatch.setattr(Client, "local_training", watched)
    monkeypatch.setattr(extrapolate, "_seconds", timed)
    found = extrapolate._pace.__wrapped__("digits", 32, "cpu", "float32")
    assert seen == [part]
    assert found == Pace(seconds * 32 / part, seconds / FORWARD)


def test_benchmarks_of_unknown_shape_are_not_timed(setting_file):
    assert pace(load_setting(str(setting_file)), CPU) is None


@pytest.mark.parametrize(
    ("engine", "asked", "jobs", "runs", "left", "workers"),
    [
        ("parallel", "auto", None, 20, 20, 4),  # four runs at a time, a core for each
        ("parallel", "auto", 1, 20, 20, 4),  # one run at a time on all cores
        ("parallel", "auto", 3, 20, 20, 3),
        ("parallel", "auto", None, 20, 1, 1),  # a study of many, of which the last has one core
        ("parallel", "auto", None, 1, 1, 4),
        ("parallel", "parallel", None, 20, 20, 4),
        ("sequential", "sequential", None, 20, 20, 4),
        ("sequential", "sequential", 1, 20, 20, 1),
        ("sequential", "sequential", 9, 20, 20, 4),
        ("stacked", "stacked", None, 20, 20, 1),
    ],
)
def test_time_is_divided_by_the_cores_that_are_busy(monkeypatch, engine, asked, jobs, runs, left, workers):
    monkeypatch.setattr("fedhv.paper.estimate.usable_cores", lambda: 4)
    choice = Choice(engine, torch.device("cpu"), "float32")
    assert _workers(choice, Options(Path("r"), jobs=jobs, engine=asked), runs, left) == workers


@pytest.mark.usefixtures("six")
def test_measured_times_come_first(monkeypatch, tmp_path):
    monkeypatch.setattr("fedhv.paper.estimate.usable_cores", lambda: 2)
    monkeypatch.setattr("fedhv.paper.estimate.pace", lambda setting, choice: Pace(1.0, 1.0))
    monkeypatch.setattr("fedhv.paper.estimate.extrapolated", lambda setting, method, parts, done: 1000.0)
    one = Options(tmp_path / "r", jobs=1, engine="sequential")
    reproduce("main", one, Selection(("multimnist",), ("uniform",), (0,)))
    wanted = Selection(("multimnist",), ("uniform", "fsmgda"), (0, 1))
    at_once = {each.name: each for each in rehearse("main", Options(one.out, jobs=2, engine="sequential"), wanted)}
    in_turn = {each.name: each for each in rehearse("main", one, wanted)}
    assert not in_turn["multimnist/uniform-seed1"].rough
    measured = sum(played.seconds for played in read_history(one.out / "multimnist" / "uniform-seed0"))
    assert in_turn["multimnist/uniform-seed1"].seconds == pytest.approx(measured)
    # Two runs at a time, a core for each as when it was measured: each takes half of the time that both do.
    assert at_once["multimnist/uniform-seed1"].seconds == in_turn["multimnist/uniform-seed1"].seconds / 2
    assert (in_turn["multimnist/fsmgda-seed0"].seconds, in_turn["multimnist/fsmgda-seed0"].rough) == (1000.0, True)
    assert (at_once["multimnist/fsmgda-seed0"].seconds, at_once["multimnist/fsmgda-seed0"].rough) == (500.0, True)
    assert (in_turn["multimnist/uniform-seed0"].seconds, in_turn["multimnist/uniform-seed0"].rough) == (0.0, False)


@pytest.mark.usefixtures("six")
@pytest.mark.parametrize(
    ("was", "is_now"),
    [
        ('device = "cpu"', 'device = "cuda"'),
        ('precision = "float32"', 'precision = "tf32"'),
        ('torch = "', 'torch = "0.'),
    ],
)
def test_rounds_of_another_machine_do_not_count(monkeypatch, tmp_path, was, is_now):
    monkeypatch.setattr("fedhv.paper.estimate.pace", lambda setting, choice: Pace(1.0, 1.0))
    monkeypatch.setattr("fedhv.paper.estimate.extrapolated", lambda setting, method, parts, done: 1000.0)
    options = Options(tmp_path / "r", jobs=1, engine="sequential")
    reproduce("main", options, Selection(("multimnist",), ("uniform",), (0,)))
    for config in options.out.rglob("config.toml"):
        text = config.read_text()
        assert was in text
        config.write_text(text.replace(was, is_now))
    forecast = rehearse("main", options, Selection(("multimnist",), ("uniform",), (0, 1)))[-1]
    assert (forecast.name, forecast.seconds, forecast.rough) == ("multimnist/uniform-seed1", 1000.0, True)
