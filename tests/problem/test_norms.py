"""Policies for BatchNorm: what becomes of layers, names and values, and what is refused in one line."""

from __future__ import annotations

import pytest
import torch
from problems import TASKS, Normalised, Small, examples
from torch import nn

import fedhv
from fedhv import Benchmark, InputError, Problem
from fedhv.engines import Sequential
from fedhv.problem.initial import initial_model
from fedhv.problem.network import Network
from fedhv.problem.norms import apply_norm
from fedhv.problem.parameters import Layout
from fedhv.problem.warm_start import warm_started
from fedhv.runs.resolve import resolve, with_policy
from fedhv.runs.training import Training

POLICIES = ("frozen", "local", "average", "group")


def problem(model=Normalised, norm="refuse") -> Problem:
    parts = [(part.inputs, part.targets) for part in (examples(12, seed=1), examples(9, seed=2))]
    return Problem.from_clients(model, TASKS, parts, parts[0], norm=norm)


def with_layer(layer: nn.Module):
    class Model(Normalised):
        def __init__(self) -> None:
            super().__init__()
            self.encoder[1] = layer

    return Model


@pytest.mark.parametrize("norm", POLICIES)
def test_parameters_keep_their_names_and_values(norm):
    torch.manual_seed(0)
    plain = Normalised()
    torch.manual_seed(0)
    layout = Network(Normalised, 2, None, "cpu", norm).layout
    theta = initial_model(Normalised, 0, norm)
    found = layout.unflatten(theta)
    for name, value in plain.named_parameters():
        assert torch.equal(found[name], value)
    running = {name: value for name, value in plain.named_buffers() if "running" in name}
    expected = set(running) if norm in ("local", "average") else set()
    assert set(found) - {name for name, _ in plain.named_parameters()} == expected
    assert layout.d_statistics == 16 * bool(expected)


def test_frozen_layers_use_the_statistics_that_the_model_is_made_with():
    made = Normalised()
    made.encoder[1].running_mean.fill_(0.5)
    made.encoder[1].running_var.fill_(4.0)
    network = Network(warm_started(problem(), made).model, 2, None, "cpu", "frozen")
    theta = torch.cat([p.detach().ravel() for p in made.parameters()])
    inputs = examples(7, seed=3).inputs
    made.eval()
    for training in (True, False):
        made.encoder[3].train(training)  # dropout alone
        torch.manual_seed(1)
        expected = made(inputs)
        torch.manual_seed(1)
        for one, other in zip(network(theta, inputs, training=training), expected, strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("layer", "groups"),
    [
        (nn.BatchNorm2d(16), 16),
        (nn.BatchNorm2d(96), 32),
        (nn.BatchNorm2d(50), 25),
        (nn.BatchNorm2d(37), 1),
        (nn.BatchNorm3d(64, affine=False), 32),
        (nn.BatchNorm1d(64), 8),
        (nn.BatchNorm1d(6), 1),
        (nn.BatchNorm2d(8, track_running_stats=False), 8),
    ],
)
def test_group_norm_has_the_largest_number_of_groups_that_divides_the_channels(layer, groups):
    module = nn.Sequential(nn.Identity(), layer)
    if layer.affine:
        nn.init.uniform_(layer.weight)
    assert apply_norm(module, "group") == 1
    made = module[1]
    assert type(made) is nn.GroupNorm
    assert (made.num_groups, made.num_channels, made.eps) == (groups, layer.num_features, layer.eps)
    assert made.weight is layer.weight
    assert made.bias is layer.bias


def test_a_layer_in_two_places_is_replaced_once():
    layer = nn.BatchNorm2d(8)
    module = nn.Sequential(layer, nn.Sequential(layer))
    assert apply_norm(module, "group") == 1
    assert module[0] is module[1][0]


def test_engines_say_what_a_policy_means_in_one_line():
    notes = {norm: Sequential(problem(norm=norm)).notes for norm in POLICIES}
    assert notes["frozen"] == notes["average"] == []
    assert notes["group"] == ['norm = "group": GroupNorm takes the place of 1 BatchNorm layer.']
    assert len(notes["local"]) == 1
    assert "The server evaluates with what the model starts with there." in notes["local"][0]


def test_a_model_without_batch_norm_is_the_same_under_every_policy():
    plain = Layout.of(Small(), 2)
    for norm in POLICIES:
        made = Sequential(problem(Small, norm))
        assert made.notes == []
        assert (made.layout.names, made.layout.statistics, made.layout.resident) == (plain.names, (), ())


@pytest.mark.parametrize(
    ("layer", "norm", "words"),
    [
        (nn.BatchNorm1d(8), "refuse", 'policy: norm = "frozen", "local", "average" or "group"'),
        (nn.BatchNorm1d(8, track_running_stats=False), "average", 'without running statistics, which norm = "average"'),
        (nn.BatchNorm1d(8, track_running_stats=False), "frozen", 'Use norm = "group"'),
        (nn.BatchNorm1d(8, momentum=None), "local", "momentum = None"),
        (nn.InstanceNorm1d(8, track_running_stats=True), "refuse", "Use `track_running_stats=False`"),
        (
            nn.InstanceNorm1d(8, track_running_stats=True),
            "group",
            "InstanceNorm1d at 'encoder.1' with running statistics",
        ),
        (type("Mine", (nn.BatchNorm1d,), {})(8), "average", "does not know"),
    ],
)
def test_what_a_policy_cannot_do_is_said_in_one_line(layer, norm, words):
    with pytest.raises(InputError) as caught:
        Sequential(problem(with_layer(layer), norm))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_policies_are_refused():
    with pytest.raises(InputError, match=r"`norm` should be 'refuse', .* or 'group'. Found 'batch'"):
        problem(norm="batch")
    with pytest.raises(InputError, match=r"`training.norm` should be"):
        Training(rounds=1, batch_size=2, local_steps=1, norm="mean")


def test_a_minibatch_of_one_example_is_refused():
    client = Sequential(problem(norm="average")).client
    theta = initial_model(Normalised, 0, "average")
    with pytest.raises(InputError, match="two values per channel or more"):
        client.gradient(theta, client.ready(client.train_examples[:1]), torch.ones(2))


def test_a_client_of_one_example_is_found_before_the_run(tmp_path):
    parts = [(part.inputs, part.targets) for part in (examples(n, seed=n) for n in (9, 1))]
    alone = Problem.from_clients(Normalised, TASKS, parts, parts[0], norm="average")
    with pytest.raises(InputError, match=r"^BatchNorm should see two values per channel or more"):
        fedhv.run(alone, "uniform", rounds=1, participants=1, out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_warm_start_takes_statistics_along(tmp_path):
    for norm in ("average", "local", "frozen", "group"):
        folder = tmp_path / norm
        result = fedhv.run(problem(norm=norm), "uniform", rounds=2, out=folder, engine="sequential")
        warm = warm_started(problem(norm=norm), folder)
        for name, value in warm.model().state_dict().items():
            if name in result.state_dict:
                assert torch.equal(value, result.state_dict[name])
        (folder / "model.safetensors").unlink()
        again = warm_started(problem(norm=norm), folder)
        assert all(
            torch.equal(a, b) for a, b in zip(again.model().parameters(), warm.model().parameters(), strict=True)
        )
        assert torch.equal(again.model().encoder[1].running_var, warm.model().encoder[1].running_var)
    moved = result.state_dict
    assert "encoder.1.running_mean" not in moved  # of "group", the last


def test_a_benchmark_has_a_policy_and_a_setting_may_have_another():
    whole = problem(norm="average")
    setting, found = resolve(whole)
    assert (setting.training.norm, found.norm) == ("average", "average")
    setting, found = resolve(whole, ["training.norm=group"])
    assert (setting.training.norm, found.norm) == ("group", "group")
    own = Benchmark("own", Normalised, TASKS, examples(21, seed=1), examples(9, seed=2), norm="local")
    assert Problem.divide(own, whole.clients).norm == "local"
    assert with_policy(whole, resolve(problem())[0]).norm == "average"
