"""Models and losses whose passes change something, or cannot be repeated, are refused before a run."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedhv
from fedhv import InputError, Problem, classification
from fedhv.engines import choose_engine
from fedhv.engines.trial_run import check_model


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.heads = nn.Linear(3, 4), nn.ModuleList([nn.Linear(4, 2)])

    def forward(self, inputs: Tensor) -> list[Tensor]:
        return [head(self.layer(inputs)) for head in self.heads]


class WritesInputs(Base):
    def forward(self, inputs: Tensor) -> list[Tensor]:
        inputs -= 1.0
        return super().forward(inputs)


class InPlaceFirst(Base):
    def forward(self, inputs: Tensor) -> list[Tensor]:
        return super().forward(nn.functional.relu(inputs, inplace=self.training))


class Clamped(Base):
    def forward(self, inputs: Tensor) -> list[Tensor]:
        with torch.no_grad():
            self.layer.weight.clamp_(-0.1, 0.1)
        return super().forward(inputs)


class Renormed(Base):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5, 3, max_norm=100.0)  # no vector is as long as that yet

    def forward(self, inputs: Tensor) -> list[Tensor]:
        return super().forward(self.words(inputs.abs().long().clamp(max=4)).mean(dim=1))


class Referenced(Base):
    def __init__(self) -> None:
        super().__init__()
        self.weights = [self.layer.weight]

    def forward(self, inputs: Tensor) -> list[Tensor]:
        return [head(inputs @ self.weights[0].T) for head in self.heads]


class Counts(Base):
    """Anneals by a counter of its own."""

    calls = 0

    def forward(self, inputs: Tensor) -> list[Tensor]:
        self.calls += self.training
        return [output * (1 + self.calls / 10) for output in super().forward(inputs)]


class Averages(Base):
    """Normalises evaluations by an average of its own."""

    average: Tensor | float = 0.0

    def forward(self, inputs: Tensor) -> list[Tensor]:
        if self.training:
            self.average = 0.9 * self.average + 0.1 * inputs.mean(dim=0)
        return super().forward(inputs if self.training else inputs - self.average)


class OwnGenerator(Base):
    def __init__(self) -> None:
        super().__init__()
        self.generator = np.random.default_rng(0)

    def forward(self, inputs: Tensor) -> list[Tensor]:
        return super().forward(inputs * (1 + self.training * self.generator.random()))


class NumPyInEvaluation(Base):
    def forward(self, inputs: Tensor) -> list[Tensor]:
        return super().forward(inputs * np.random.rand())  # noqa: NPY002


def problem(model: type[nn.Module], test_width: int = 3) -> Problem:
    draws = np.random.default_rng(0)
    inputs = draws.normal(size=(12, 3)).astype(np.float32)
    kinds = (inputs[:, 0] > 0).astype(np.int64)
    test = draws.normal(size=(6, test_width)).astype(np.float32), [kinds[:6]]
    return Problem.from_clients(model, [classification("kind", 2)], [(inputs, [kinds])], test=test)


def begin(model: type[nn.Module], folder, **options):
    return fedhv.run(problem(model, **options), "uniform", rounds=1, participants=1, out=folder / "run", quiet=True)


@pytest.mark.parametrize(
    ("model", "found"),
    [
        (WritesInputs, "should not write into its inputs"),
        (InPlaceFirst, "should not write into its inputs"),
        (Clamped, "changes 'layer.weight' in place"),
        (Renormed, r"changes 'words.weight' in place.*`max_norm`"),
        (Referenced, "a reference of its own to a parameter"),
        (Counts, "other losses in a later training pass"),
        (Averages, "other losses in a later evaluation pass"),
        (OwnGenerator, "other losses in a later training pass"),
        (NumPyInEvaluation, "draws in evaluation mode"),
    ],
)
def test_it_is_refused_and_nothing_is_written(model, found, tmp_path):
    with pytest.raises(InputError, match=found):
        begin(model, tmp_path)
    assert not (tmp_path / "run").exists()


def test_the_users_examples_stay_as_they_are():
    given = problem(WritesInputs)
    before = given.train.inputs.clone()
    with pytest.raises(InputError):
        fedhv.run(given, "uniform", rounds=1, participants=1, quiet=True)
    assert torch.equal(given.train.inputs, before)


def test_a_model_without_side_effects_keeps_its_parameters(tmp_path):
    shared = Base()
    before = {name: value.clone() for name, value in shared.state_dict().items()}
    begin(lambda: shared, tmp_path)
    assert all(torch.equal(value, before[name]) for name, value in shared.state_dict().items())


def test_test_examples_of_another_shape_are_found_before_the_run(tmp_path):
    with pytest.raises(InputError, match=r"should take the test examples' inputs, for two examples \(2, 5\)"):
        begin(Base, tmp_path, test_width=5)
    assert not (tmp_path / "run").exists()


def drawing(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs + torch.rand_like(outputs), targets, reduction="none")


def writing_outputs(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs.detach().neg_() + outputs, targets, reduction="none")


def writing_targets(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets.neg_().add_(1), reduction="none")


@pytest.mark.parametrize(
    ("loss", "found"),
    [
        (drawing, "Losses and scores should draw no random numbers"),
        (writing_outputs, "the outputs of task 'kind' are changed in place"),
        (writing_targets, "the targets of task 'kind' are changed in place"),
    ],
)
def test_losses_and_scores_change_nothing_and_draw_nothing(loss, found):
    made = problem(Base)
    with pytest.raises(InputError, match=found):
        check_model(replace(made, tasks=(replace(made.tasks[0], loss=loss),)))
    with pytest.raises(InputError, match=found):
        check_model(replace(made, tasks=(replace(made.tasks[0], score=lambda o, t: loss(o, t).sigmoid()),)))


def test_losses_and_scores_treat_every_example_by_itself():
    """An output n × 1 minus targets n is n × n: every example would be compared with the targets of all."""
    draws = np.random.default_rng(0)
    inputs, targets = draws.normal(size=(12, 3)).astype(np.float32), draws.normal(size=12).astype(np.float32)
    own = (inputs, [targets])

    def right(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs[:, 0] - targets).square().clamp(max=1)

    def broadcast(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().clamp(max=1).mean(dim=1)

    def check(loss, score) -> None:
        task = fedhv.Task("stay", loss, score)
        check_model(Problem.from_clients(lambda: nn.Linear(3, 1), [task], [own], test=own))

    check(right, right)
    with pytest.raises(InputError, match=r"^The loss of task 'stay' .* broadcast\? .* \(2, 1\) and \(2,\)\.$"):
        check(broadcast, right)
    with pytest.raises(InputError, match=r"^The score of task 'stay' should treat every example by itself"):
        check(right, broadcast)


class Margins(nn.Module):
    """A loss with a margin for every class."""

    def __init__(self) -> None:
        super().__init__()
        self.margin = nn.Parameter(torch.zeros(2))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs + self.margin, targets, reduction="none")


def test_a_loss_has_nothing_to_train():
    made, loss = problem(Base), Margins()
    trained = replace(made, tasks=(replace(made.tasks[0], loss=loss),))
    with pytest.raises(InputError, match=r"^The loss of task 'kind' should have no parameters to train"):
        check_model(trained)
    loss.requires_grad_(False)
    check_model(trained)


def test_the_users_generators_stay_as_they_are():
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    check_model(problem(PythonsDraws))
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before  # noqa: NPY002


class PythonsDraws(Base):
    """Draws from Python's and NumPy's generators, as teacher forcing and masks of spectra do."""

    def __init__(self) -> None:
        super().__init__()
        with torch.no_grad():
            self.layer.weight.copy_(torch.from_numpy(np.random.randn(4, 3)))  # noqa: NPY002

    def forward(self, inputs: Tensor) -> list[Tensor]:
        if self.training and random.random() < 0.5:
            inputs = inputs * np.random.rand()  # noqa: NPY002
        return super().forward(inputs)


def several(model: type[nn.Module]) -> Problem:
    draws = np.random.default_rng(0)
    clients = [(draws.normal(size=(n, 3)).astype(np.float32), [draws.integers(0, 2, n)]) for n in (6, 3, 8)]
    return Problem.from_clients(model, [classification("kind", 2)], clients, test=clients[0])


@pytest.mark.parametrize("method", ["uniform", "fedcmoo"])
def test_draws_from_pythons_and_numpys_generators_are_those_of_the_client(method):
    """The same bits on every engine, whatever was drawn before, and in a run that is continued."""
    options = {"rounds": 3, "participants": 3, "local_steps": 3, "batch_size": 4, "quiet": True}
    found = []
    for i, engine in enumerate(["sequential", "parallel", "stacked"]):
        random.seed(i)
        np.random.seed(i)  # noqa: NPY002
        found.append(fedhv.run(several(PythonsDraws), method, engine=engine, **options).state_dict)
    for other in found[1:]:
        assert all(torch.equal(other[name], value) for name, value in found[0].items())
    choice = choose_engine("stacked", "cpu", problem=several(PythonsDraws))
    assert choice.engine == "sequential"
    assert "draws from the generators of Python or NumPy" in choice.reason


class Mixed(Base):
    """Mixes the examples of a minibatch in random order."""

    def forward(self, inputs: Tensor) -> list[Tensor]:
        if self.training:
            inputs = 0.7 * inputs + 0.3 * inputs[self.order(len(inputs))]
        return super().forward(inputs)

    def order(self, n: int) -> Tensor:
        return torch.randperm(n)


class MixedBySorting(Mixed):
    def order(self, n: int) -> Tensor:
        return torch.rand(n).argsort()


@pytest.mark.parametrize("model", [Mixed, MixedBySorting])
def test_examples_that_are_mixed_in_random_order_are_not_mixed_with_padding(model):
    choice = choose_engine("stacked", "cpu", problem=several(model))
    assert choice.reason == "the model cannot be stacked: its examples depend on one another within a minibatch"
