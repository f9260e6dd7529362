"""A model that begins with given parameters: from a run, a file, a state dict or a module."""

import pytest
import torch
from problems import everything_random
from safetensors.torch import save_file
from torch import nn

import fedhv
from fedhv import InputError
from fedhv.problem.initial import initial_model
from fedhv.problem.parameters import flatten
from fedhv.problem.warm_start import warm_started


def trained(problem):
    """A module of the problem's with parameters of its own."""
    module = problem.model()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(1.5)
    return module


@pytest.mark.parametrize("kind", ["module", "state dict", "safetensors", "pt"])
def test_every_seed_begins_with_the_given_parameters(kind, tmp_path):
    problem = everything_random()
    module = trained(problem)
    source = {"module": module, "state dict": module.state_dict()}.get(kind)
    if kind == "safetensors":
        source = tmp_path / "weights.safetensors"
        save_file(module.state_dict(), source)
    if kind == "pt":
        source = tmp_path / "weights.pt"
        torch.save(module.state_dict(), source)
    warm = warm_started(problem, source)
    for seed in (0, 5):
        assert torch.equal(initial_model(warm.model, seed), flatten(module))


def test_a_run_goes_on_from_another_ones_model(tmp_path):
    problem = everything_random()
    first = fedhv.run(problem, "uniform", rounds=2, out=tmp_path / "first")
    warm = warm_started(problem, tmp_path / "first")
    expected = torch.cat([first.state_dict[name].ravel() for name, _ in problem.model().named_parameters()])
    assert torch.equal(initial_model(warm.model, 3), expected)
    (tmp_path / "first" / "model.safetensors").unlink()
    again = warm_started(problem, tmp_path / "first")  # from the checkpoint, which is of the same round
    assert torch.equal(initial_model(again.model, 3), expected)


def test_frozen_parameters_come_along_and_neither_travel_nor_count():
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Linear(6, 8)
            self.encoder.requires_grad_(False)
            self.heads = nn.ModuleList([nn.Linear(8, 3), nn.Linear(8, 4)])

        def forward(self, x):
            return [head(self.encoder(x)) for head in self.heads]

    base = everything_random()
    problem = fedhv.Problem(
        name="frozen", model=Frozen, tasks=base.tasks, train=base.train, test=base.test, clients=base.clients
    )
    module = trained(problem)
    warm = warm_started(problem, module)
    assert torch.equal(warm.model().encoder.weight, module.encoder.weight)
    assert initial_model(warm.model, 0).numel() == 8 * 3 + 3 + 8 * 4 + 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda state: state.pop(next(iter(state))), "should have the model's"),
        (lambda state: state.update(extra=torch.zeros(1)), "has 'extra', which the model does not have"),
        (lambda state: state.update({next(iter(state)): torch.zeros(1)}), "should have shape"),
        (lambda state: state.update({next(iter(state)): "a"}), "should be a tensor. Found str"),
        (lambda state: next(iter(state.values())).fill_(torch.nan), "should be finite. Found NaN or infinity"),
    ],
)
def test_what_does_not_fit_is_named_in_one_line(change, words):
    problem = everything_random()
    state = dict(trained(problem).state_dict())
    change(state)
    with pytest.raises(InputError, match=words):
        warm_started(problem, state)


def test_what_is_no_source_is_named(tmp_path):
    problem = everything_random()
    for source, words in ((3, "Found 3"), (tmp_path, "holds neither"), (tmp_path / "no", "no file")):
        with pytest.raises(InputError, match=words):
            warm_started(problem, source)
    (tmp_path / "bad.safetensors").write_bytes(b"nothing")
    with pytest.raises(InputError, match="could not be read"):
        warm_started(problem, tmp_path / "bad.safetensors")
    torch.save(trained(problem), tmp_path / "module.pt")
    with pytest.raises(InputError, match="should be a state dict of tensors alone") as found:
        warm_started(problem, tmp_path / "module.pt")
    assert "\n" not in str(found.value)
