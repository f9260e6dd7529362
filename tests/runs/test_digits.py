"""The embedded benchmark: two digits in one image, an easy and a hard task, no download."""

import socket

import numpy as np
import pytest
import torch

from fedhv import run
from fedhv.benchmarks import digits, load_benchmark
from fedhv.benchmarks.digits import CONTRAST, COPIES, TRAIN
from fedhv.benchmarks.models import LeNet


@pytest.fixture(scope="module")
def benchmark():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "socket", lambda *_, **__: pytest.fail("the network was used"))
        return load_benchmark("digits")


def test_it_has_two_tasks_of_ten_digits_in_images_of_28_by_28(benchmark):
    assert [task.name for task in benchmark.tasks] == ["clear", "faint"]
    for examples, n in ((benchmark.train, COPIES * TRAIN), (benchmark.test, COPIES * (1797 - TRAIN))):
        assert examples.inputs.shape == (n, 1, 28, 28)
        assert examples.inputs.dtype == torch.uint8
        for targets in examples.targets:
            assert targets.unique().tolist() == list(range(10))


def test_it_goes_through_the_model_of_multimnist(benchmark):
    assert benchmark.model is LeNet
    outputs = benchmark.model()(benchmark.prepare(benchmark.test.inputs[:3]))
    assert [tuple(output.shape) for output in outputs] == [(3, 10), (3, 10)]


def test_it_is_the_same_whenever_it_is_loaded(benchmark):
    torch.manual_seed(123)
    np.random.seed(123)  # noqa: NPY002
    digits._parts.cache_clear()  # made anew, as in another process
    again = load_benchmark("digits")
    for one, two in ((benchmark.train, again.train), (benchmark.test, again.test)):
        assert torch.equal(one.inputs, two.inputs)
        assert all(torch.equal(a, b) for a, b in zip(one.targets, two.targets, strict=True))


def test_the_clear_digit_is_bright_and_the_faint_one_is_not(benchmark):
    # the first digit's corner is the canvas's own, the second's ends six pixels before the opposite edge
    inputs = benchmark.train.inputs.float() / 255
    assert inputs.amax() == 1.0
    only_faint = inputs[:, 0, -5:, -5:].amax()
    assert 0 < only_faint <= CONTRAST + 1 / 255


def test_every_digit_is_the_clear_one_equally_often_and_the_faint_one_at_random(benchmark):
    clear, faint = (targets.numpy() for targets in benchmark.train.targets)
    assert (clear.reshape(COPIES, TRAIN) == clear[:TRAIN]).all()
    assert (faint.reshape(COPIES, TRAIN) == faint[:TRAIN]).mean() < 0.5
    assert abs(np.corrcoef(clear, faint)[0, 1]) < 0.05


def test_test_images_show_digits_that_training_never_saw(benchmark):
    seen = {image.numpy().tobytes() for image in benchmark.train.inputs}
    assert not any(image.numpy().tobytes() in seen for image in benchmark.test.inputs)


SHORT = ["evaluation.every=0", "federation.participants=3", "calibration.rounds=2"]
OPTIONS = {"rounds": 40, "engine": "sequential", "override": SHORT}


@pytest.fixture(scope="module")
def uniform():
    return run("digits", "uniform", **OPTIONS)


def test_one_task_is_easier_than_the_other(uniform):
    clear, faint = uniform.tasks
    assert clear.accuracy > faint.accuracy + 10
    assert clear.loss < faint.loss


def test_balancing_shows(uniform):
    """After 40 rounds Uniform has not begun to learn the faint digit; FedHV has learnt it halfway."""
    balanced = run("digits", "fedhv", **OPTIONS)
    assert [task.name for task in balanced.tasks] == ["clear", "faint"]
    assert balanced.worst_accuracy > uniform.worst_accuracy + 20
    assert balanced.mean_accuracy > uniform.mean_accuracy + 10
