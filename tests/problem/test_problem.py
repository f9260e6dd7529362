"""Problems: what poisons a run is refused where it enters."""

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


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("split", ["train", "test"])
def test_inputs_that_are_not_finite_are_refused(value, split):
    poisoned = examples(40, 1)
    poisoned.inputs[3, 1] = value
    with pytest.raises(InputError, match=r"expected finite inputs. Found NaN or infinity"):
        benchmark(**{split: poisoned})


def test_labels_out_of_range_are_refused_with_task_and_range():
    poisoned = examples(40, 1)
    poisoned.targets[1][3] = 4
    with pytest.raises(InputError, match=r"Task 'größe' expects labels from 0 to 3. Found 0 to 4"):
        benchmark(train=poisoned)


def test_targets_of_another_number_are_refused():
    part = examples(40, 1)
    with pytest.raises(InputError, match=r"expected targets for 2 tasks. Found 1"):
        benchmark(train=Examples(part.inputs, part.targets[:1]))
    with pytest.raises(InputError, match=r"expected 40 targets for task 'colour'. Found 39"):
        benchmark(train=Examples(part.inputs, (part.targets[0][1:], part.targets[1])))


def test_a_problem_without_tasks_or_with_two_of_one_name_is_refused():
    with pytest.raises(InputError, match="at least one task"):
        benchmark(tasks=())
    with pytest.raises(InputError, match="every task differently"):
        benchmark(tasks=(classification("a", 3), classification("a", 4)))


def test_a_split_without_examples_is_refused():
    with pytest.raises(InputError, match="test examples: expected at least one"):
        benchmark(test=examples(10, 1)[:0])


def test_an_empty_client_is_refused_by_its_number():
    with pytest.raises(InputError, match="Found client 1 empty"):
        Problem.divide(benchmark(), Clients.of([[0], [], [1]]))
    with pytest.raises(InputError, match="client 1's examples: expected at least one"):
        Problem.from_clients(Small, TASKS, [arrays(3), arrays(0)], test=arrays(4))


def test_a_problem_without_clients_is_refused():
    with pytest.raises(InputError, match="at least one client"):
        Problem.divide(benchmark(), Clients.of([]))
    with pytest.raises(InputError, match="at least one client"):
        Problem.from_clients(Small, TASKS, [], test=arrays(4))


@pytest.mark.parametrize("index", [-1, 40])
def test_clients_with_examples_that_do_not_exist_are_refused(index):
    with pytest.raises(InputError, match="indices from 0 to 39"):
        Problem.divide(benchmark(), Clients.of([[0, index]]))


@pytest.mark.parametrize("labels", [np.array(["red", "blue"]), np.array([{}, {}], dtype=object), [[1], [2, 3]]])
def test_targets_that_are_no_numbers_are_refused(labels):
    with pytest.raises(InputError, match="targets should be an array of numbers"):
        Examples.of(np.zeros((2, 4), dtype=np.float32), [labels])


def test_a_model_in_the_place_of_its_factory_is_refused():
    with pytest.raises(InputError, match=r"Found a Small; give `lambda: Small\(…\)`"):
        Benchmark("small", Small(), TASKS, examples(8, seed=1), examples(8, seed=2))


def test_a_clients_own_bad_data_is_reported_with_its_number():
    inputs, targets = arrays(3)
    inputs[0, 0] = np.nan
    with pytest.raises(InputError, match="client 2's examples: expected finite"):
        Problem.from_clients(Small, TASKS, [arrays(3), arrays(3), (inputs, targets)], test=arrays(4))


def test_an_error_is_one_line_and_a_value_error():
    with pytest.raises(ValueError, match="at least one task") as caught:
        benchmark(tasks=())
    assert "\n" not in str(caught.value)
