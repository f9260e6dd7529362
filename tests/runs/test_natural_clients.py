"""A benchmark that defines its clients keeps them; a setting of it says only who takes part."""

import tomllib

import numpy as np
import pytest

import fedhv
from fedhv import InputError
from fedhv.runs.config import load_setting
from fedhv.runs.resolve import resolve

SETTING = """
benchmark = "hospitals:{loader}"
[federation]
participants = 3
{more}
[training]
rounds = 2
batch_size = 4
local_steps = 2
[evaluation]
every = 0
"""

LOADERS = """
import numpy as np
import fedhv
from torch import nn

def problem():
    draws = np.random.default_rng(0)
    def one(n):
        return draws.normal(size=(n, 3)).astype(np.float32), [draws.integers(2, size=n)]
    net = lambda: nn.Sequential(nn.Linear(3, 2), Wrap())
    sizes = [5, 9, 20, 7, 6, 31]
    return fedhv.Problem.from_clients(net, [fedhv.classification("a", 2)], [one(n) for n in sizes], test=one(10))

class Wrap(nn.Module):
    def forward(self, x):
        return [x]

def benchmark():
    made = problem()
    return fedhv.Benchmark(made.name, made.model, made.tasks, made.train, made.test)
"""


@pytest.fixture
def setting(tmp_path, monkeypatch):
    (tmp_path / "hospitals.py").write_text(LOADERS)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(loader="problem", more=""):
        path = tmp_path / "hospitals.toml"
        path.write_text(SETTING.format(loader=loader, more=more))
        return str(path)

    return write


def test_a_problem_keeps_its_clients(setting):
    _, problem = resolve(setting())
    assert problem.clients.sizes.tolist() == [5, 9, 20, 7, 6, 31]
    np.testing.assert_array_equal(problem.clients.indices, np.arange(78))


def test_such_a_setting_runs_and_resumes(setting, tmp_path):
    run = fedhv.run(setting(), "uniform", out=tmp_path / "run", engine="sequential")
    again = fedhv.run(setting(), "uniform", out=tmp_path / "run", engine="sequential", resume=True)
    assert again.summary == run.summary
    federation = tomllib.loads((tmp_path / "run" / "config.toml").read_text())["setting"]["federation"]
    assert not {"clients", "samples_per_client"} & set(federation)


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("clients", "clients = 6"),
        ("samples_per_client", "samples_per_client = 5"),
        ("alpha", "alpha = 0.1"),
        ("partition", 'partition = "iid"'),
        ("strata", 'strata = "first"'),
    ],
)
def test_keys_that_would_change_nothing_are_refused(setting, key, line):
    with pytest.raises(InputError, match=rf"defines its clients: `federation.{key}` has no effect. Leave it out."):
        resolve(setting(more=line))


@pytest.mark.parametrize(
    ("more", "key"), [("", "clients"), ("clients = 4", "samples_per_client"), ("samples_per_client = 4", "clients")]
)
def test_a_benchmark_without_clients_needs_to_be_divided(setting, more, key):
    with pytest.raises(InputError, match=rf"`federation.{key}` is missing: benchmark 'custom' does not define clients"):
        resolve(setting("benchmark", more))


def test_more_participants_than_clients_are_refused(setting):
    with pytest.raises(InputError, match=r"`federation.participants` \(M\) should be at most N = 6. Found M = 7"):
        fedhv.run(setting(), "uniform", override=["federation.participants=7"], engine="sequential")


def test_participants_are_still_needed(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(SETTING.format(loader="problem", more="").replace("participants = 3", ""))
    with pytest.raises(InputError, match=r"The key `federation.participants` is missing"):
        load_setting(str(path))
