"""The examples in docstrings of public names run, with what a user would have at hand."""

from __future__ import annotations

import doctest
import inspect

import numpy as np
import pytest
import torch
from torch import nn

import fedhv

PARSER = doctest.DocTestParser()


def documented():
    """Docstrings with examples: those of public names and of their methods."""
    for name in fedhv.__all__:
        thing = getattr(fedhv, name)
        places = [(name, thing)]
        if inspect.isclass(thing):
            places += [(f"{name}.{each}", getattr(thing, each)) for each in vars(thing) if not each.startswith("_")]
        for place, each in places:
            examples = PARSER.get_examples(inspect.getdoc(each) or "") if callable(each) else []
            if examples:
                yield pytest.param(examples, id=place)


class Net(nn.Module):
    """Any number of inputs, two outputs: what an example needs."""

    def __init__(self, inputs=2, outputs=(2,)):
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(inputs, width) for width in outputs])

    def forward(self, x):
        return [head(x) for head in self.heads]


@pytest.fixture(scope="module")
def at_hand(tmp_path_factory):
    """A folder with a run, arrays, a table and a dataset."""
    pandas, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    partitioners = pytest.importorskip("flwr_datasets.partitioner")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("examples"))
        yield _namespace(pandas, datasets, partitioners)


def _namespace(pandas, datasets, partitioners):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 2)).astype(np.float32), np.arange(8) % 2
    risk = [fedhv.classification("risk", 2)]
    problem = fedhv.Problem.from_clients(Net, risk, [(x, [y])] * 2, test=(x, [y]))
    fedhv.run(problem, "uniform", rounds=1, participants=2, out="runs/hospitals")
    fedhv.run("digits", "uniform", rounds=1, participants=2, out="runs/digits/fedhv-seed0")
    frame = pandas.DataFrame({"age": x[:, 0], "weight": x[:, 1], "risk": y, "days": x[:, 0], "hospital": y})
    labelled = datasets.Dataset.from_dict({"x": x.repeat(20, 0).tolist(), "label": y.repeat(20).tolist()})
    return vars(fedhv) | {
        "fedhv": fedhv, "np": np, "torch": torch, "Net": Net, "frame": frame, "later": frame, "problem": problem,
        "x0": x, "y0": y, "x1": x, "y1": y, "x": x, "y": y, "new_patients": x, "risk": y,
        "images": torch.zeros(5, 1, 28, 28, dtype=torch.uint8), "dataset": labelled, "held_out": labelled,
        "tasks": [fedhv.classification("kind", 2)],
        "TensorDataset": torch.utils.data.TensorDataset, "DirichletPartitioner": partitioners.DirichletPartitioner,
    } | {name: getattr(fedhv, name) for name in fedhv.__all__}  # fmt: skip


def test_the_functions_that_people_begin_with_have_examples():
    shown = {parameter.id for parameter in documented()}
    assert {"run", "compare", "calibrate", "load_model", "export", "evaluate", "partition", "Metric"} <= shown


@pytest.mark.parametrize("examples", list(documented()))
def test_the_example_runs(examples, at_hand, few_steps):
    for example in examples:
        try:
            found = eval(compile(example.source.strip(), "docstring", "eval"), at_hand)
        except SyntaxError:
            exec(compile(example.source, "docstring", "exec"), at_hand)
            continue
        if example.want:
            assert "".join(repr(found).split()) == "".join(example.want.split())
