"""Small problems: one whose answers are worked out on paper, and one in which everything random is at work."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from waiting import HANG

import fedhv.runs.processes
import fedhv.runs.saving
from fedhv import Benchmark, Examples, Problem, Task, classification
from fedhv.benchmarks import load_benchmark

# --- quadratic: two clients, two tasks, numbers for paper -------------------------------------------------


class Number(nn.Module):
    """A head that is one number."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(1))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.value.expand(len(inputs), 1)


class Point(nn.Module):
    """A shared point of the plane and a number for every task; output i is (x, y, hᵢ), whatever the input."""

    def __init__(self, tasks: int = 2) -> None:
        super().__init__()
        self.point = nn.Parameter(torch.zeros(2))
        self.heads = nn.ModuleList(Number() for _ in range(tasks))

    def forward(self, inputs: Tensor) -> list[Tensor]:
        shared = self.point.expand(len(inputs), 2)
        return [torch.cat([shared, head(inputs)], dim=1) for head in self.heads]


def half_square(outputs: Tensor, targets: Tensor) -> Tensor:
    return 0.5 * (outputs - targets).square().sum(dim=1)


def within_one(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs - targets).norm(dim=1) <= 1).float()


POINTS = {0: ([2.0, 0.0, 1.0], [0.0, 2.0, -1.0]), 1: ([4.0, 0.0, 1.0], [0.0, 0.0, -1.0])}
"""For every client the targets (x, y, h) of the two tasks, before the examples are spread around them."""


def quadratic(order: tuple[int, ...] = (0, 1)) -> Problem:
    """½‖(x, y, hᵢ) − target‖² with two examples a client, one step left and right of POINTS in x."""
    spread = torch.tensor([[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    clients = [(torch.zeros(2, 1), [torch.tensor(POINTS[k][i]) + spread for i in order]) for k in sorted(POINTS)]
    tasks = [Task(("left", "right")[i], half_square, within_one) for i in order]
    return Problem.from_clients(Point, tasks, clients, test=clients[0], name="quadratic")


# --- a small problem with dropout, augmentation, unequal clients ------------------------------------------


class Small(nn.Module):
    """A two-headed perceptron with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.25))
        self.heads = nn.ModuleList([nn.Linear(8, 3), nn.Linear(8, 4)])

    def forward(self, inputs: Tensor) -> list[Tensor]:
        hidden = self.encoder(inputs)
        return [head(hidden) for head in self.heads]


class Noise:
    """Augmentation by a little noise."""

    def draw(self, rng: np.random.Generator, steps: int, batch: int) -> np.ndarray:
        return rng.standard_normal((steps, batch, 6), dtype=np.float32)

    def apply(self, inputs: Tensor, draws: Tensor) -> Tensor:
        return inputs + 0.1 * draws


TASKS = (classification("colour", 3), classification("größe", 4))
SIZES = (5, 9, 14, 20, 33)


def examples(n: int, seed: int) -> Examples:
    """Gaussian inputs; the labels depend on them, so that there is something to learn."""
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((n, 6), dtype=np.float32)
    colour = inputs[:, :3].argmax(axis=1)
    size = np.digitize(inputs[:, 3] + 0.5 * rng.standard_normal(n), [-0.7, 0.0, 0.7])
    return Examples.of(inputs, (colour, size))


def everything_random() -> Problem:
    """Five clients of 5 to 33 examples, a model with dropout, minibatches with augmentation."""
    train = examples(sum(SIZES), seed=1)
    ends = np.cumsum(SIZES)
    parts = [train[int(end) - size : int(end)] for size, end in zip(SIZES, ends, strict=True)]
    return Problem.from_clients(
        Small,
        TASKS,
        [(part.inputs, part.targets) for part in parts],
        test=(examples(60, seed=2).inputs, examples(60, seed=2).targets),
        name="random",
        augment=Noise(),
    )


# --- the same as a benchmark that a setting names ---------------------------------------------------------


def benchmark() -> Benchmark:
    """What `benchmark = "problems:benchmark"` loads."""
    return Benchmark("small", Small, TASKS, examples(240, seed=1), examples(60, seed=2), augment=Noise())


def with_nan() -> Benchmark:
    """A NaN among the inputs."""
    train = examples(240, seed=1)
    train.inputs[17, 2] = torch.nan
    return Benchmark("small", Small, TASKS, train, examples(60, seed=2))


def with_wrong_label() -> Benchmark:
    """A label 3 where classes are 0, 1, 2."""
    train = examples(240, seed=1)
    train.targets[0][17] = 3
    return Benchmark("small", Small, TASKS, train, examples(60, seed=2))


class Normalised(Small):
    """With a layer that federated averaging cannot carry."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder.insert(1, nn.BatchNorm1d(8))


def with_batch_norm() -> Benchmark:
    """A model that is refused."""
    return Benchmark("small", Normalised, TASKS, examples(240, seed=1), examples(60, seed=2))


class OneOutput(Small):
    """Forgets a task."""

    def forward(self, inputs: Tensor) -> list[Tensor]:
        return super().forward(inputs)[:1]


def with_one_output() -> Benchmark:
    """A model with fewer outputs than tasks."""
    return Benchmark("small", OneOutput, TASKS, examples(240, seed=1), examples(60, seed=2))


class NarrowHead(Small):
    """Forgets a class."""

    def forward(self, inputs: Tensor) -> list[Tensor]:
        colour, *others = super().forward(inputs)
        return [colour[:, :-1], *others]


def with_a_narrow_head() -> Benchmark:
    """A model with fewer outputs than classes."""
    return Benchmark("small", NarrowHead, TASKS, examples(240, seed=1), examples(60, seed=2))


def with_whole_numbers() -> Benchmark:
    """Inputs that a model of real numbers does not take."""
    train, test = examples(240, seed=1), examples(60, seed=2)
    whole = [Examples(part.inputs.long(), part.targets) for part in (train, test)]
    return Benchmark("small", Small, TASKS, *whole)


def with_mean_loss() -> Benchmark:
    """A loss that averages over examples by itself."""
    mean = Task("colour", nn.functional.cross_entropy, TASKS[0].score)
    return Benchmark("small", Small, (mean, TASKS[1]), examples(240, seed=1), examples(60, seed=2))


def with_mean_score() -> Benchmark:
    """A score that averages over examples by itself."""
    mean = Task("colour", TASKS[0].loss, lambda outputs, targets: TASKS[0].score(outputs, targets).mean())
    return Benchmark("small", Small, (mean, TASKS[1]), examples(240, seed=1), examples(60, seed=2))


def hold() -> None:
    """Once the text HOLD_TEXT is in the file HOLD_WHEN, wait for the file HOLD_UNTIL: a test acts while a run goes on.

    Without HOLD_TEXT anything in the file will do.
    """
    when, until = (Path(os.path.expandvars(os.environ.get(name, ""))) for name in ("HOLD_WHEN", "HOLD_UNTIL"))
    text = os.environ.get("HOLD_TEXT", "").encode()
    while when.is_file() and not until.exists() and (found := when.read_bytes()) and text in found:
        time.sleep(0.02)


class Held:
    """A preparation that can be held."""

    def __init__(self, prepare: Callable[[Tensor], Tensor] | None) -> None:
        self.prepare = prepare

    def __call__(self, inputs: Tensor) -> Tensor:
        hold()
        return inputs if self.prepare is None else self.prepare(inputs)


class Fuse:
    """A preparation that leaves inputs alone, but can be held, or kill the process as a power cut would."""

    def __call__(self, inputs: Tensor) -> Tensor:
        hold()
        USES.append(1)  # not in the object: what it has done is no part of what a run's fingerprint sees
        if len(USES) == int(os.environ.get("FUSE", "0")):
            os.kill(os.getpid(), signal.SIGKILL)
        return inputs


USES: list[int] = []


def with_fuse() -> Benchmark:
    """Dies at the use that the variable FUSE names, after checkpoints of every round; can be held."""
    if "PATIENT" in os.environ:
        fedhv.runs.processes.SECONDS_TO_STOP = HANG
    if "FUSE" in os.environ:
        fedhv.runs.saving.SECONDS_BETWEEN_CHECKPOINTS, fedhv.runs.saving.SHARE_OF_CHECKPOINTS = 0.0, float("inf")
    return Benchmark(
        "small", Small, TASKS, examples(240, seed=1), examples(60, seed=2), prepare=Fuse(), augment=Noise()
    )


def held_digits() -> Benchmark:
    """The embedded benchmark, which can be held."""
    digits = load_benchmark("digits")
    return replace(digits, prepare=Held(digits.prepare))


def dies_once() -> Benchmark:
    """Kills the first process that is not DEATH_SPARES, and leaves the file DEATH_MARK as a sign of it."""
    mark = os.environ["DEATH_MARK"]
    if not os.path.exists(mark) and str(os.getpid()) != os.environ["DEATH_SPARES"]:
        with open(mark, "w"):
            os.kill(os.getpid(), signal.SIGKILL)
    return benchmark()


SETTING = """
description = "A small problem"
benchmark = "problems:benchmark"

[federation]
clients = 6
participants = 3
samples_per_client = 30
alpha = 0.5

[training]
rounds = 4
batch_size = 8
local_steps = 3
momentum = 0.5

[evaluation]
every = 2

[calibration]
rounds = 2

[methods.fedhv]
server_lr = 1.1
report = 2
"""
