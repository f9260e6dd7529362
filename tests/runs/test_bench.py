"""`fedhv bench`: the engines side by side, with the datasets or without."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from waiting import HANG

from fedhv import FedHVError, InputError
from fedhv.benchmarks import BENCHMARKS, load_benchmark
from fedhv.benchmarks.random_images import SHAPES, random_problem
from fedhv.cli.bench import _table
from fedhv.engines import Sequential, heap
from fedhv.problem.pooling import Halve, with_fast_pooling
from fedhv.protocol.client import Client
from fedhv.runs.bench import Measurement, ProblemSource, choose_engines, measure
from fedhv.runs.config import load_setting, shipped_settings

SMALL = [
    "federation.clients=3", "federation.participants=2", "federation.samples_per_client=8",
    "training.batch_size=4", "training.local_steps=2",
]  # fmt: skip


@pytest.mark.parametrize(("method", "steps"), [("fedhv", 9), ("fsmgda", 18), ("fedcmoo", 12)])
def test_every_engine_is_measured(setting_file, command, method, steps):
    outcome = command("bench", setting_file, "--method", method, "--rounds", 2, "--json", "--engines",
                      "sequential,parallel,stacked")  # fmt: skip
    assert outcome.code == 0, outcome.err
    result = json.loads(outcome.out)
    assert [each["engine"] for each in result["engines"]] == ["sequential", "parallel", "stacked"]
    for each in result["engines"]:
        assert len(each["seconds"]) == 2
        assert each["steps"] == steps  # three clients, K = 3; two tasks
        assert each["round_seconds"] == pytest.approx(sum(each["seconds"]) / 2)
        assert each["client_steps_per_second"] == pytest.approx(steps / each["round_seconds"])
        assert each["evaluation_seconds"] > 0
        assert 0 < each["evaluation_share"] < 1
        assert each["peak_memory_bytes"] > 0
    assert (result["method"], result["random"]) == (method, False)


def test_the_steps_of_epochs_are_counted(setting_file, command):
    epochs = "training.local_epochs=2"
    outcome = command("bench", setting_file, "--rounds", 1, "--json", "--engines", "sequential", "--set", epochs)
    assert outcome.code == 0, outcome.err
    setting = load_setting(str(setting_file), [epochs])
    examples, local = setting.federation.samples_per_client, setting.training.local(0.1)
    assert json.loads(outcome.out)["engines"][0]["steps"] == 3 * local.steps_of(examples) == 18  # three clients


def test_the_table_is_for_people(setting_file, command):
    outcome = command("bench", setting_file, "--rounds", 1, "--engines", "sequential,stacked")
    assert outcome.code == 0
    for word in ("s/round", "client-steps/s", "s/evaluation", "memory", "sequential", "stacked", "The default is"):
        assert word in outcome.out


def test_without_the_datasets_random_images_stand_in(command, tmp_path):
    arguments = [part for change in SMALL for part in ("--set", change)]
    outcome = command("bench", "multimnist", *arguments, "--rounds", 1, "--engines", "sequential", "--data", tmp_path)
    assert outcome.code == 0, outcome.err
    assert "Random images of the benchmark's shape are used instead" in outcome.err
    assert "MNIST" in outcome.err  # and what was missing
    outcome = command("bench", "multimnist", *arguments, "--rounds", 1, "--engines", "sequential", "--random", "--json")
    assert json.loads(outcome.out)["random"] is True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engines", "sequential,sequential"], "none twice"),
        (["--engines", ""], "at least one engine"),
        (["--engines", "paralel"], "Did you mean 'parallel'"),
        (["--method", "fedhw"], "Did you mean 'fedhv'"),
    ],
)
def test_bad_input_is_said_in_one_line(setting_file, command, arguments, message):
    outcome = command("bench", setting_file, *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


def test_an_engine_whose_process_dies_does_not_stop_the_others(setting_file, monkeypatch):
    setting = load_setting(str(setting_file))
    source = ProblemSource(setting)
    problem, method = source(), setting.method("uniform")
    tests, answer = os.getpid(), Client.answer
    choices, _ = choose_engines(["sequential", "stacked"], "cpu", "auto", problem, setting.plan(method, 0))

    def deadly(self, call, k):
        assert os.getpid() != tests
        os.kill(os.getpid(), signal.SIGKILL)
        return answer(self, call, k)

    monkeypatch.setattr(Client, "answer", deadly)  # the stacked engine does not use it for training
    dead, alive = measure(source, problem, method, choices, rounds=1)
    assert dead.as_dict() == {"engine": "sequential", "error": "A round ended its worker process (out of memory?)."}
    assert alive.error == ""
    assert alive.round > 0


@pytest.mark.parametrize("when", ["in a round", "before the first"])
def test_an_engine_that_cannot_go_on_says_why(setting_file, monkeypatch, when):
    setting = load_setting(str(setting_file))
    source = ProblemSource(setting)
    problem, method = source(), setting.method("uniform")
    choices, _ = choose_engines(["sequential", "stacked"], "cpu", "auto", problem, setting.plan(method, 0))

    def failing(self, *_):
        raise FedHVError("not today")

    place = (Client, "answer") if when == "in a round" else (Sequential, "__init__")
    monkeypatch.setattr(*place, failing)
    failed, fine = measure(source, problem, method, choices, rounds=1)
    assert failed.as_dict() == {"engine": "sequential", "error": "not today"}
    assert fine.error == ""


def test_an_engine_that_stands_in_for_another_is_measured_once(setting_file, monkeypatch):
    setting = load_setting(str(setting_file))
    problem, plan = ProblemSource(setting)(), setting.plan(setting.method("uniform"), 0)
    monkeypatch.setattr("fedhv.engines.choosing.why_not_mappable", lambda *_: "it cannot")
    choices, _ = choose_engines(["sequential", "stacked"], "cpu", "auto", problem, plan)
    assert [(choice.engine, choice.reason) for choice in choices] == [("sequential", "as requested")]
    choices, _ = choose_engines(["stacked"], "cpu", "auto", problem, plan)
    assert [choice.reason for choice in choices] == ["the model cannot be stacked: it cannot"]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.0081, "12,346"), (2.0, "50"), (40.0, "2.5"), (3000.0, "0.0333"), (1.0, "100")]
)
def test_slow_settings_show_significant_digits(seconds, shown):
    table = _table([Measurement("sequential", "cpu", "float32", seconds=(seconds,), every=1, steps=100)])
    (column,) = [column for column in table.columns if column.header == "client-steps/s"]
    assert list(column.cells) == [shown]


def test_the_share_of_evaluation_follows_the_setting():
    measured = Measurement("sequential", seconds=(1.0, 2.0, 3.0), evaluation=3.0, every=3, steps=100)
    assert measured.round == 2.0
    assert measured.steps_per_second == 50.0
    assert measured.evaluation_share == pytest.approx(1 / 3)  # one second of every three


# --- random problems --------------------------------------------------------------------------------------


def test_every_shipped_benchmark_of_images_has_a_shape():
    tables = {"tox21", "star"}  # they bring their clients
    assert set(SHAPES) == set(BENCHMARKS) - tables
    assert {load_setting(name).benchmark for name in shipped_settings()} - tables <= set(SHAPES)


def test_a_random_problem_has_the_shape_of_the_real_one():
    setting = load_setting("digits", SMALL)
    made, real = random_problem(setting), load_benchmark("digits")
    assert made.train.inputs.shape[1:] == real.train.inputs.shape[1:]
    assert made.train.inputs.dtype == real.train.inputs.dtype
    assert len(made.test) == len(real.test)
    assert made.clients.sizes.tolist() == [8, 8, 8]
    assert Client(made).layout.d == 34_635
    for name in ("celeba5-a", "cifar10-mnist-b"):
        problem = random_problem(load_setting(name, SMALL), test=4)
        assert len(problem.test) == 4
        for task, targets in zip(problem.tasks, problem.train.targets, strict=True):
            task.check(targets)
    with pytest.raises(InputError, match="known shape"):
        random_problem(load_setting("digits", ["benchmark=my.module:load"]))


# --- what makes CPU engines fast --------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 10, 28, 28), (2, 15, 12, 12), (1, 2, 5, 7), (2, 1, 1, 4)])
def test_pooling_without_gradients_gives_the_same_bits(shape):
    images = torch.from_numpy(np.random.default_rng(0).standard_normal(shape, dtype=np.float32))
    images[0, 0, 0, 0] = torch.nan
    for layout in (torch.contiguous_format, torch.channels_last):
        given = images.contiguous(memory_format=layout)
        if shape[-2] < 2:
            with torch.no_grad(), pytest.raises(RuntimeError, match="too small"):
                Halve()(given)
            continue
        with torch.no_grad():
            fast = Halve()(given)
        assert torch.equal(fast.nan_to_num(7.0), torch.nn.MaxPool2d(2)(given).nan_to_num(7.0))


def test_only_poolings_that_can_be_are_replaced():
    hooked = torch.nn.MaxPool2d(2)
    hooked.register_forward_hook(lambda *_: None)
    others = [torch.nn.MaxPool2d(3), torch.nn.MaxPool2d(2, stride=1), torch.nn.MaxPool2d(2, padding=1),
              torch.nn.MaxPool2d(2, ceil_mode=True), hooked]  # fmt: skip
    module = torch.nn.Sequential(torch.nn.MaxPool2d(2), torch.nn.Sequential(torch.nn.MaxPool2d((2, 2))), *others)
    with_fast_pooling(module)
    assert type(module[0]) is type(module[1][0]) is Halve
    assert all(type(layer) is torch.nn.MaxPool2d for layer in module[2:])


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_channels_last_for_every_layer_behind(channels):
    setting = load_setting("digits" if channels == 1 else "cifar10-mnist-b", SMALL)
    client = Client(random_problem(setting, test=4))
    batch = client.batch(np.arange(4), 0)
    assert batch.inputs.stride(1) == 1
    first = client.network.module.encoder[0](batch.inputs)
    assert first.stride(1) == 1
    assert torch.equal(batch.inputs, client.ready(client.train_examples[:4], channels_last=False).inputs)


def test_memory_is_kept_and_given_back():
    if not heap.keep_freed_memory():
        pytest.skip("the C library of this system cannot be asked")
    heap.give_memory_back()
    # In a process of its own: what the tests before left in the heap decides where a block is put.
    code = """
import torch
from fedhv.engines import heap
from fedhv.support.memory import held_memory

heap.keep_freed_memory()
torch.ones(64 * 2**20)  # 256 MB, made and dropped
kept = held_memory()
heap.give_memory_back()
print(kept - held_memory())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=HANG)
    assert float(done.stdout) > 200e6
