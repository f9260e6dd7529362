"""Which engine a run gets, what is said about it, and models that cannot be stacked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from problems import everything_random
from torch import nn

from fedhv import InputError, LocalTraining, Problem, Uniform, classification, compare, run
from fedhv.benchmarks.models import LeNet
from fedhv.engines import choose_engine
from fedhv.engines.mappable import why_not_mappable
from fedhv.simulation.observer import Observer
from fedhv.simulation.rounds import Plan
from fedhv.support import toml


class Branching(nn.Module):
    """Looks at the data to decide what to do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, inputs):
        return [self.layer(inputs if inputs.sum() > 0 else -inputs)]


class Peeking(Branching):
    """Takes a number out of a tensor."""

    def forward(self, inputs):
        return [self.layer(inputs) * inputs.abs().max().item()]


class Remembering(Branching):
    """Writes into a buffer of its own."""

    def forward(self, inputs):
        self.seen.add_(inputs.detach().mean(dim=0))
        return [self.layer(inputs)]


class Counting(Branching):
    """The shape of a result depends on the data, for which nothing can be batched."""

    def forward(self, inputs):
        return [self.layer(inputs) + inputs.nonzero().shape[0]]


def problem_with(model: type[nn.Module]) -> Problem:
    rng = np.random.default_rng(3)
    clients = [(rng.standard_normal((6, 4)).astype(np.float32), [rng.integers(0, 3, 6)]) for _ in range(4)]
    return Problem.from_clients(model, [classification("only", 3)], clients, clients[0])


UNMAPPABLE = (Branching, Peeking, Remembering, Counting)


@pytest.mark.parametrize("model", UNMAPPABLE)
def test_a_model_that_cannot_be_mapped_is_found_with_the_reason(model):
    problem = problem_with(model)
    reason = why_not_mappable(problem)
    assert reason
    assert "\n" not in reason
    choice = choose_engine("stacked", "cpu", problem=problem)
    assert (choice.engine, choice.announce) == ("sequential", True)
    assert choice.reason == f"the model cannot be stacked: {reason}"


def test_models_that_can_be_mapped_are_left_alone():
    assert why_not_mappable(everything_random()) is None  # dropout and augmentation included
    choice = choose_engine("stacked", "cpu", problem=everything_random())
    assert (choice.engine, choice.reason, choice.announce) == ("stacked", "as requested", False)


def test_the_trial_run_leaves_no_trace_in_the_random_state():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    why_not_mappable(everything_random())
    assert torch.equal(torch.get_rng_state(), before)


class Notes(Observer):
    def __init__(self) -> None:
        self.said: list[str] = []

    def message(self, text):
        self.said.append(text)


@pytest.mark.parametrize("play", ["run", "compare"])
def test_a_run_that_asked_for_stacking_says_why_it_is_not_and_gives_the_same_numbers(tmp_path, play):
    problem, notes = problem_with(Branching), Notes()
    options = {"rounds": 2, "override": ["training.batch_size=4"], "observer": notes}
    if play == "run":
        run(problem, "uniform", engine="stacked", out=tmp_path / "r", **options)
    else:
        compare(problem, ["uniform"], [0], engine="stacked", out=tmp_path / "s", **options)
    folder = tmp_path / "r" if play == "run" else tmp_path / "s" / "uniform-seed0"
    (said,) = [text for text in notes.said if "Engine:" in text]
    assert said.startswith("Engine: sequential on cpu, float32 (the model cannot be stacked: ")
    machine = toml.read(folder / "config.toml")["machine"]
    assert machine["engine"] == "sequential"
    assert machine["why"] in said
    plain = run(problem, "uniform", engine="sequential", rounds=2, override=["training.batch_size=4"])
    again = run(problem, "uniform", engine="stacked", rounds=2, override=["training.batch_size=4"])
    assert all(torch.equal(plain.state_dict[name], again.state_dict[name]) for name in plain.state_dict)


def test_a_model_that_cannot_be_stacked_is_computed_in_the_precision_that_was_asked_for():
    choice = choose_engine("stacked", "cpu", "bf16", problem_with(Peeking))
    assert (choice.engine, choice.precision) == ("sequential", "bf16")


class OnlyFloat32(Branching):
    """Cannot be stacked, and mixes the types that autocast makes."""

    def forward(self, inputs):
        middle = self.layer(inputs if inputs.sum() > 0 else -inputs)
        return [torch.addbmm(middle, inputs[:, None, :1], middle[:, None].float())]


def test_a_model_that_does_not_compute_in_bf16_is_refused_before_the_run():
    assert choose_engine("stacked", "cpu", "float32", problem_with(OnlyFloat32)).engine == "sequential"
    with pytest.raises(InputError, match=r"should compute in bf16\. Found: .*\. Use --precision float32\.$"):
        choose_engine("stacked", "cpu", "bf16", problem_with(OnlyFloat32))


LOCAL = LocalTraining(10, 32, 0.1)


@pytest.mark.parametrize(
    ("model", "participants", "cores", "engine", "reason"),
    [
        (LeNet, 20, 2, "parallel", "2 cores, 20 clients a round"),
        (LeNet, 1, 2, "sequential", "a round has one client"),
        (LeNet, 20, 1, "sequential", "one core"),
        (Branching, 20, 8, "sequential", "the clients' work is too small for worker processes"),
    ],
)
def test_auto_looks_at_the_cores_the_model_and_the_cohort(monkeypatch, model, participants, cores, engine, reason):
    monkeypatch.setattr("fedhv.engines.choosing.usable_cores", lambda: cores)
    problem = replace(everything_random(), model=model)
    choice = choose_engine("auto", "cpu", problem=problem, plan=Plan(1, participants, LOCAL))
    assert (choice.engine, choice.reason, choice.announce) == (engine, reason, True)


@pytest.mark.parametrize(("epochs", "engine"), [(1, "sequential"), (1000, "parallel")])
def test_auto_counts_the_steps_of_epochs(monkeypatch, epochs, engine):
    monkeypatch.setattr("fedhv.engines.choosing.usable_cores", lambda: 2)
    problem = replace(everything_random(), model=Branching)
    assert (
        choose_engine("auto", "cpu", problem=problem, plan=Plan(1, 4, replace(LOCAL, epochs=epochs))).engine == engine
    )


def test_what_auto_chose_is_said_and_kept(tmp_path):
    notes = Notes()
    run(everything_random(), Uniform(), rounds=1, out=tmp_path / "r", observer=notes)
    assert notes.said[0].startswith("Engine: sequential on ")
    assert toml.read(tmp_path / "r" / "config.toml")["machine"]["why"] in notes.said[0]
