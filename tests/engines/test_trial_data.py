"""Collation, preparation and augmentation that engines could not repeat, or not together, are refused before a run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedhv import InputError, Problem, classification
from fedhv.benchmarks.augment import Rotate
from fedhv.engines.trial_run import check_model


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> list[Tensor]:
        return [self.layer(inputs[:, :4].float())]


def problem(inputs=None, **options) -> Problem:
    draws = np.random.default_rng(0)
    inputs = draws.normal(size=(9, 4)).astype(np.float32) if inputs is None else inputs
    examples = inputs, [draws.integers(0, 2, 9)]
    return Problem.from_clients(Net, [classification("kind", 2)], [examples], test=examples, **options)


def through_numpy(inputs: Tensor) -> Tensor:
    array = inputs.numpy()
    array /= 2
    return inputs


@pytest.mark.parametrize(
    ("prepare", "found"),
    [
        (lambda x: x.div_(255), "should not write into the inputs"),
        (through_numpy, "should not write into the inputs"),
        (lambda x: x + torch.randn_like(x), "random changes belong into"),
        (lambda x: x * np.random.rand(), "random changes belong into"),  # noqa: NPY002
        (lambda x: x - x.mean(dim=0), "should treat every example by itself"),
        (lambda x: x.numpy(), "should return a tensor, .* Found ndarray"),
        (lambda x: x[:1], r"with an entry for each of 2 examples\. Found \(1, 4\)"),
        (lambda x: x.missing, r"should take the stored inputs, \(2, 4\) of torch.float32\. Found AttributeError"),
    ],
)
def test_a_preparation_is_a_function_of_one_example(prepare, found):
    made = problem(prepare=prepare)
    before = made.train.inputs.clone(), made.test.inputs.clone()
    with pytest.raises(InputError, match=found):
        check_model(made)
    assert torch.equal(made.train.inputs, before[0])
    assert torch.equal(made.test.inputs, before[1])


def test_a_preparation_may_trim_what_a_minibatch_does_not_need():
    words = np.tri(9, 9, dtype=np.int64)  # the first has one word, the second two
    check_model(problem(words + 1, prepare=lambda x: x[:, : max(4, int((x > 1).sum(dim=1).max()))]))


def test_a_collation_gives_the_same_inputs_every_time():
    draws = np.random.default_rng(1)

    def collate(items):
        return torch.stack([torch.as_tensor(item) for item in items]) * float(draws.random())

    with pytest.raises(InputError, match="`collate` should give the same inputs for the same examples"):
        check_model(problem(collate=collate))


class Scale:
    """An augmentation as it should be; it may write into its copy."""

    def draw(self, rng: np.random.Generator, steps: int, batch: int) -> np.ndarray:
        return rng.normal(size=(steps, batch, 1)).astype(np.float32)

    def apply(self, inputs: Tensor, draws: Tensor) -> Tensor:
        return inputs.mul_(1 + draws)


class OneDraw(Scale):
    def draw(self, rng, steps, batch):
        return rng.normal(size=(steps, 1, 1))


class FailingDraw(Scale):
    def draw(self, rng, steps):
        return rng.normal(size=(steps, 1, 1))


class Drawing(Scale):
    def apply(self, inputs, draws):
        return inputs * torch.rand(len(inputs), 1)


class Mixing(Scale):
    def apply(self, inputs, draws):
        return 0.7 * inputs + 0.3 * inputs[draws[:, 0].argsort()]


class Nothing(Scale):
    def apply(self, inputs, draws):
        return None


@pytest.mark.parametrize(
    ("augment", "found"),
    [
        (OneDraw(), r"shape \(steps, batch, …\), here \(1, 8, …\)\. Found \(1, 1, 1\)"),
        (FailingDraw(), "`augment.draw` should return draws for 1 step of 8 examples. Found TypeError"),
        (Drawing(), "make them in `augment.draw`"),
        (Mixing(), "should treat every example by itself"),
        (Nothing(), "`augment.apply` should return a tensor, .* Found NoneType"),
    ],
)
def test_an_augmentation_follows_from_an_example_and_its_draws(augment, found):
    with pytest.raises(InputError, match=found):
        check_model(problem(augment=augment))


def test_augmentations_that_do_so_are_taken():
    check_model(problem(augment=Scale()))

    class Images(Net):
        def forward(self, inputs):
            return super().forward(inputs.flatten(1))

    images = np.random.default_rng(2).normal(size=(9, 1, 6, 6)).astype(np.float32)
    examples = images, [np.arange(9) % 2]
    check_model(Problem.from_clients(Images, [classification("kind", 2)], [examples], examples, augment=Rotate(25)))
