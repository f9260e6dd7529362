"""Problems: what poisons a run is refused where it enters."""

import re

import numpy as np
import pytest
import torch
from problems import TASKS, Small, examples

from fedhv import Benchmark, Clients, Examples, InputError, Problem, classification


def benchmark(train=None, test=None, tasks=TASKS):
    train = examples(40, 1) if train is None else train
    return Benchmark("b", Small, tasks, train, examples(10, 2) if test is None else test)


def arrays(n, seed=0):
    part = examples(n, seed)
    return part.inputs.numpy(), [targets.numpy() for targets in part.targets]


# --- clients ----------------------------------------------------------------------------------------------


def test_clients_are_index_lists():
    clients = Clients.of([[3, 1], [4], [0, 2, 5]])
    assert len(clients) == 3
    assert [held.tolist() for held in clients] == [[3, 1], [4], [0, 2, 5]]
    assert clients[2].tolist() == [0, 2, 5]
    assert clients.sizes.tolist() == [2, 1, 3]


def test_a_million_clients_are_two_arrays():
    clients = Clients(np.arange(2_000_000), np.arange(0, 2_000_001, 2))
    assert len(clients) == 1_000_000
    assert clients[999_999].tolist() == [1_999_998, 1_999_999]


def test_clients_arrays_become_one_table_of_examples_in_their_order():
    parts = [arrays(3, 1), arrays(5, 2)]
    problem = Problem.from_clients(Small, TASKS, parts, test=arrays(4, 3))
    assert problem.clients.sizes.tolist() == [3, 5]
    for k, (inputs, targets) in enumerate(parts):
        held = problem.train[torch.from_numpy(problem.clients[k])]
        assert torch.equal(held.inputs, torch.from_numpy(inputs))
        assert all(torch.equal(a, torch.from_numpy(b)) for a, b in zip(held.targets, targets, strict=True))


def test_examples_keep_inputs_and_targets_together():
    part = examples(10, 0)[[7, 2]]
    assert len(part) == 2
    assert torch.equal(part.inputs[0], examples(10, 0).inputs[7])
    assert part.targets[1][1] == examples(10, 0).targets[1][2]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_real_numbers_of_any_precision_become_those_of_the_model(dtype):
    part = Examples.of(np.zeros((4, 6), dtype), [np.zeros(4, dtype), np.zeros(4, np.int32)])
    assert part.inputs.dtype == torch.float32
    assert part.targets[0].dtype == torch.float32
    assert part.targets[1].dtype == torch.int32


def test_whole_numbers_stay_as_they_are():
    assert Examples.of(np.zeros((4, 1, 2, 2), np.uint8), [np.zeros(4)]).inputs.dtype == torch.uint8


# --- what is refused --------------------------------------------------------------------------------------


def poisoned(value):
    part = examples(40, 1)
    part.inputs[3, 1] = value
    return part


def mislabelled():
    part = examples(40, 1)
    part.targets[1][3] = 4
    return part


def from_clients(*clients):
    return Problem.from_clients(Small, TASKS, clients, test=arrays(4))


PART, SMALL_INPUTS = examples(40, 1), np.zeros((2, 4), dtype=np.float32)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: benchmark(train=poisoned(np.nan)), "expected finite inputs. Found NaN or infinity"),
        (lambda: benchmark(test=poisoned(-np.inf)), "expected finite inputs. Found NaN or infinity"),
        (lambda: benchmark(train=mislabelled()), "Task 'größe' expects labels from 0 to 3. Found 0 to 4"),
        (lambda: benchmark(train=Examples(PART.inputs, PART.targets[:1])), "targets for 2 tasks. Found 1"),
        (
            lambda: benchmark(train=Examples(PART.inputs, (PART.targets[0][1:], PART.targets[1]))),
            "expected 40 targets for task 'colour'. Found 39",
        ),
        (lambda: benchmark(tasks=()), "at least one task"),
        (lambda: benchmark(tasks=(classification("a", 3), classification("a", 4))), "every task differently"),
        (lambda: benchmark(test=PART[:0]), "test examples: expected at least one"),
        (lambda: Problem.divide(benchmark(), Clients.of([[0], [], [1]])), "Found client 1 empty"),
        (lambda: Problem.divide(benchmark(), Clients.of([])), "at least one client"),
        (lambda: Problem.divide(benchmark(), Clients.of([[0, -1]])), "indices from 0 to 39"),
        (lambda: Problem.divide(benchmark(), Clients.of([[0, 40]])), "indices from 0 to 39"),
        (lambda: from_clients(), "at least one client"),
        (lambda: from_clients(arrays(3), arrays(0)), "client 1's examples: expected at least one"),
        (
            lambda: from_clients(arrays(3), arrays(3), (arrays(3)[0] * np.nan, arrays(3)[1])),
            "client 2's examples: expected finite",
        ),
        (lambda: Examples.of(SMALL_INPUTS, [np.array(["red", "blue"])]), "targets should be an array of numbers"),
        (lambda: Examples.of(SMALL_INPUTS, [[[1], [2, 3]]]), "targets should be an array of numbers"),
        (lambda: Benchmark("small", Small(), TASKS, PART, PART), "Found a Small; give `lambda: Small(…)`"),
    ],
)
def test_what_poisons_a_run_is_refused_in_one_line(make, reason):
    with pytest.raises(ValueError, match=re.escape(reason)) as caught:
        make()
    assert isinstance(caught.value, InputError)
    assert "\n" not in str(caught.value)
