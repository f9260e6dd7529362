"""Inputs of several parts: a tuple's are the model's arguments, a dict's its keywords, on every engine."""

import numpy as np
import pytest
import torch

from fedhv import Examples, InputError, Problem
from fedhv.engines import choose_engine
from fedhv.engines.mappable import why_not_mappable
from fedhv.engines.trial_run import check_model
from fedhv.problem.arrays import as_inputs, as_targets
from fedhv.problem.trees import arguments, describe, leaves, rebuild, structure, tree_map

from .ward import TASKS, Net, TwoParts, arrays, clients, trained


def as_tuple(x):
    return x[:, :3], x[:, 3:]


def as_dict(x):
    return {"right": x[:, 3:], "left": x[:, :3]}  # keywords: their order says nothing


def divided(form, model):
    parts = [(form(x), targets) for x, targets in clients()]
    x, targets = arrays(9, seed=9)
    return Problem.from_clients(model, TASKS, parts, (form(x), targets))


@pytest.mark.parametrize("engine", ["sequential", "parallel", "stacked"])
@pytest.mark.parametrize("form", [as_tuple, as_dict])
def test_parts_train_as_the_whole_does(form, engine):
    model, losses = trained(divided(form, TwoParts), engine)
    expected, expected_losses = trained(divided(lambda x: x, Net), engine)
    assert torch.equal(model, expected)
    assert losses == expected_losses


@pytest.mark.parametrize("form", [as_tuple, as_dict])
def test_a_model_of_several_inputs_can_be_stacked(form):
    problem = divided(form, TwoParts)
    check_model(problem)
    assert why_not_mappable(problem) is None
    assert choose_engine("stacked", "cpu", problem=problem).engine == "stacked"


def test_prepare_sees_the_parts_as_they_are():
    parts = [(as_dict(x), targets) for x, targets in clients()]
    x, targets = arrays(9, seed=9)
    doubled = Problem.from_clients(
        TwoParts, TASKS, parts, (as_dict(x), targets), prepare=lambda inputs: {**inputs, "left": 2 * inputs["left"]}
    )
    twice = [({**as_dict(x), "left": 2 * x[:, :3]}, targets) for x, targets in clients()]
    plain = Problem.from_clients(TwoParts, TASKS, twice, ({**as_dict(x), "left": 2 * x[:, :3]}, targets))
    assert torch.equal(trained(doubled)[0], trained(plain)[0])


def test_images_with_a_table_are_laid_out_channels_last_and_the_table_is_not():
    from fedhv.protocol.client import Client

    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = torch.nn.Conv2d(3, 2, 3)
            self.heads = torch.nn.ModuleList([torch.nn.Linear(3, 2), torch.nn.Linear(3, 1)])

        def forward(self, image, table):
            shared = torch.cat([self.convolution(image).mean(dim=(2, 3)), table], dim=1)
            return [head(shared) for head in self.heads]

    rng = np.random.default_rng(0)
    image, table = rng.standard_normal((6, 3, 5, 5)).astype(np.float32), rng.standard_normal((6, 1))
    _, targets = arrays(6)
    problem = Problem.from_clients(Both, TASKS, [((image, table), targets)], ((image, table), targets))
    batch = Client(problem).batch(np.arange(4), 0)
    assert batch.inputs[0].is_contiguous(memory_format=torch.channels_last)
    assert batch.inputs[1].shape == (4, 1)
    for engine in ("sequential", "stacked"):
        assert torch.isfinite(trained(problem, engine)[0]).all()


def test_examples_of_several_parts_are_read_and_moved_together():
    x, targets = arrays(6)
    part = Examples.of({"a": x, "b": (x[:, :1], x[:, 1:])}, targets)
    some = part[[4, 1]].to("cpu")
    assert len(part) == 6
    assert len(some) == 2
    assert torch.equal(some.inputs["b"][1], torch.from_numpy(x[[4, 1], 1:]))
    folded = part.fold(2, 3)
    assert [leaf.shape[:2] for leaf in leaves(folded.inputs)] == [(2, 3)] * 3
    assert folded.targets[0].shape == (2, 3)


def test_trees():
    tree = {"a": torch.zeros(2, 3), "b": (torch.ones(2), torch.zeros(2, dtype=torch.int64))}
    assert len(leaves(tree)) == 3
    assert structure(tree) == {"a": None, "b": (None, None)}
    assert rebuild(tree, [1, 2, 3]) == {"a": 1, "b": (2, 3)}
    assert tree_map(len, tree) == {"a": 2, "b": (2, 2)}
    assert arguments(tree) == ((), tree)
    assert arguments(tree["b"]) == (tree["b"], {})
    assert describe(tree) == "{a: (2, 3) of torch.float32, b: ((2,) of torch.float32, (2,) of torch.int64)}"


# --- what is refused ----------------------------------------------------------------------------------------


def test_parts_of_different_lengths_are_refused():
    x, targets = arrays(6)
    with pytest.raises(InputError, match=r"client 0's examples: expected all parts .* Found lengths \[6, 5\]\.$"):
        Problem.from_clients(TwoParts, TASKS, [((x, x[:5]), targets)], ((x, x), targets))


def test_the_order_of_keywords_may_differ_between_clients():
    x, targets = arrays(6)
    other = {"left": x[:, :3], "right": x[:, 3:]}
    problem = Problem.from_clients(TwoParts, TASKS, [(as_dict(x), targets), (other, targets)], (other, targets))
    assert torch.equal(problem.train.inputs["left"], torch.from_numpy(np.concatenate([x, x])[:, :3]))
    assert torch.equal(problem.train.inputs["right"], torch.from_numpy(np.concatenate([x, x])[:, 3:]))


def test_clients_with_other_parts_are_refused():
    x, targets = arrays(6)
    with pytest.raises(InputError, match=r"same parts\. Found a dict of \['left'\] with client 1, one array with"):
        Problem.from_clients(Net, TASKS, [(x, targets), ({"left": x}, targets)], (x, targets))
    with pytest.raises(InputError, match=r"Found a tuple of 2 with client 1"):
        Problem.from_clients(Net, TASKS, [(x, targets), ((x, x), targets)], (x, targets))
    read = Examples.of(list(x), targets, collate=lambda items: torch.stack([torch.from_numpy(item) for item in items]))
    with pytest.raises(InputError, match=r"all be read by `collate` .* Found one of each with clients 1 and 0\.$"):
        Problem.from_clients(Net, TASKS, [read, (x, targets)], (x, targets))


def test_nan_in_one_part_is_refused():
    x, targets = arrays(6)
    bad = x.copy()
    bad[2, 3] = np.nan
    with pytest.raises(InputError, match=r"client 0's examples: expected finite inputs"):
        Problem.from_clients(TwoParts, TASKS, [(as_tuple(bad), targets)], (as_tuple(x), targets))


def test_no_parts_are_refused():
    with pytest.raises(InputError, match=r"inputs should have at least one part\. Found an empty dict"):
        Examples.of({}, [])


def test_a_model_that_does_not_take_the_parts_is_told_their_shapes():
    with pytest.raises(InputError, match=r"for two examples \{right: \(2, 1\) of torch.float32, left: "):
        check_model(divided(as_dict, Net))


def test_arrays_that_torch_cannot_view_or_compute_with():
    forward = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert as_inputs(forward[::-1]).tolist() == [[4, 5], [2, 3], [0, 1]]
    assert as_targets(np.arange(3, dtype=np.uint64), 3).dtype == torch.int64
    with pytest.raises(InputError, match=r"dense array of real numbers\. Found torch\.complex64"):
        as_inputs(forward.astype(np.complex64))
    with pytest.raises(InputError, match=r"dense array of real numbers\. Found a sparse tensor"):
        as_inputs(torch.eye(3).to_sparse())
