"""Data as people have it gives the problem that its arrays give: pandas, torch, HuggingFace, flwr-datasets."""

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from fedhv import Examples, InputError, Problem, classification, multilabel, padded, regression, run
from fedhv.problem.stored import Collated

from .ward import TASKS, Net, TwoParts, Words, arrays, clients, trained

INPUTS = ["a", "b", "c", "d"]
TARGETS = {"stay": "days", "risk": "at_risk"}  # named, so that their order says nothing


def columns(parts):
    """The clients' arrays as one table with a column that says whose row it is."""
    x = np.concatenate([x for x, _ in parts])
    risk, stay = (np.concatenate([targets[i] for _, targets in parts]) for i in range(2))
    owner = np.repeat([f"hospital {k}" for k in range(len(parts))], [len(x) for x, _ in parts])
    return {name: x[:, j] for j, name in enumerate(INPUTS)} | {"at_risk": risk, "days": stay, "hospital": owner}


def shuffled(parts, seed=3):
    """The same rows in another order; each client's own order stays."""
    table = columns(parts)
    rng = np.random.default_rng(seed)
    owner = rng.permutation(np.repeat(np.arange(len(parts)), [len(x) for x, _ in parts]))
    order = np.argsort(np.argsort(owner, kind="stable"))
    return {name: values[order] for name, values in table.items()}


def expected(model=Net):
    return Problem.from_clients(model, TASKS, clients(), arrays(9, seed=9))


def same(problem, other):
    """Every client has the same examples, in the same order."""
    assert problem.clients.sizes.tolist() == other.clients.sizes.tolist()
    for k in range(len(other.clients)):
        mine, theirs = problem.train[problem.clients[k]], other.train[other.clients[k]]
        assert torch.equal(mine.inputs, theirs.inputs)
        for a, b in zip(mine.targets, theirs.targets, strict=True):
            assert a.dtype == b.dtype
            assert torch.equal(a, b)
    assert torch.equal(problem.test.inputs, other.test.inputs)
    return True


# --- arrays and tensors -------------------------------------------------------------------------------------


def test_tensors_of_a_graph_are_numbers(tmp_path):
    def part(n, seed=0):
        x, (risk, stay) = arrays(n, seed)
        return torch.tensor(x, requires_grad=True) * 1, [risk, torch.tensor(stay, requires_grad=True)]

    problem = Problem.from_clients(Net, TASKS, [part(n, k + 1) for k, n in enumerate((7, 12, 5))], part(9, 9))
    assert same(problem, expected())
    assert not problem.train.inputs.requires_grad
    assert run(problem, "uniform", rounds=1, out=tmp_path / "run").rounds


def test_masked_entries_of_an_array_are_missing():
    x, (risk, stay) = arrays(6)
    hidden = np.arange(6) % 3 == 0
    given = [np.ma.masked_array(risk, hidden), np.ma.masked_array(stay, hidden)]
    problem = Problem.from_clients(Net, TASKS, [(x, given)], (x, [np.ma.masked_array(risk), stay]))
    assert [mask.tolist() for mask in problem.train.labelled] == [(~hidden).tolist()] * 2
    assert problem.train.targets[0].dtype == torch.int64
    assert problem.test.labelled is None
    with pytest.raises(InputError, match="finite inputs"):
        Problem.from_clients(Net, TASKS, [(np.ma.masked_array(x, x > 0), [risk, stay])], (x, [risk, stay]))


def test_long_floats_are_floats():
    x, targets = arrays(6)
    assert torch.equal(Examples.of(x.astype(np.longdouble), targets).inputs, torch.from_numpy(x))


# --- pandas -------------------------------------------------------------------------------------------------


def frame(table, **options):
    pandas = pytest.importorskip("pandas")
    made = pandas.DataFrame(table, **options)
    made.index = np.random.default_rng(0).permutation(len(made)) + 1000  # an index of its own
    return made


def test_a_frame_is_the_problem_of_its_arrays():
    table, test = frame(shuffled(clients())), frame(columns([arrays(9, seed=9)]))
    problem = Problem.from_table(Net, TASKS, table, inputs=INPUTS, targets=TARGETS, client="hospital", test=test)
    assert same(problem, expected())
    assert torch.equal(trained(problem)[0], trained(expected())[0])


def test_without_targets_a_task_has_the_column_of_its_name():
    named = {column: task for task, column in TARGETS.items()}
    table, test = frame(shuffled(clients())), frame(columns([arrays(9, seed=9)]))
    tables = [each.rename(columns=named) for each in (table, test)]
    problem = Problem.from_table(Net, TASKS, tables[0], inputs=INPUTS, client="hospital", test=tables[1])
    assert same(problem, expected())
    with pytest.raises(InputError, match=f"'{TASKS[0].name}'"):
        Problem.from_table(Net, TASKS, table, inputs=INPUTS, client="hospital", test=test)


@pytest.mark.parametrize("dtype", ["Int64", "int32[pyarrow]", "Int8", "boolean"])
def test_nullable_columns_without_gaps_are_numbers(dtype):
    table = frame(columns(clients()))
    table["at_risk"] = table["at_risk"].astype(dtype)
    part = Examples.from_table(table, INPUTS, TARGETS)
    assert part.targets[1].tolist() == columns(clients())["at_risk"].tolist()
    assert not part.targets[1].is_floating_point()
    assert part.labelled is None


def test_a_series_with_an_index_of_its_own_is_its_values():
    table = frame(columns(clients()))
    x, targets = table[INPUTS], [table["at_risk"], table["days"]]
    part = Examples.of(x, targets)
    assert torch.equal(part.inputs, torch.from_numpy(table[INPUTS].to_numpy(copy=True)))
    assert part.targets[0].tolist() == table["at_risk"].tolist()
    problem = Problem.from_clients(Net, TASKS, [(x, table[["at_risk", "days"]])], (x, targets))
    assert torch.equal(problem.train.targets[1], problem.test.targets[1])


def test_a_frame_of_targets_with_the_tasks_names_is_taken_by_name():
    tasks = [regression("risk", 1.0), regression("stay", 1.0)]
    x, (risk, stay) = arrays(6)
    named = frame({"stay": stay, "risk": risk})
    problem = Problem.from_clients(Net, tasks, [(x, named)], (x, [risk, stay]))
    for mine, theirs in zip(problem.train.targets, problem.test.targets, strict=True):
        assert torch.equal(mine.float(), theirs.float())


@pytest.mark.parametrize("kind", ["index", "array"])
def test_names_of_columns_may_be_an_index_or_an_array(kind):
    table = frame(columns(clients()))
    names = table.columns[:4] if kind == "index" else np.array(INPUTS)
    assert torch.equal(Examples.from_table(table, names, TARGETS).inputs, expected().train.inputs)


def test_several_columns_of_one_task_lie_side_by_side():
    table = frame({"x": [0.0, 1.0, 2.0], "m1": [0, 1, 1], "m2": [1, 1, 0], "who": ["b", "a", "b"]})
    tasks = [multilabel("marks", 2)]
    problem = Problem.from_table(
        Net, tasks, table, inputs=["x"], targets={"marks": ["m1", "m2"]}, client="who", test=table
    )
    assert problem.train.targets[0].tolist() == [[0, 1], [1, 1], [1, 0]]
    assert [held.tolist() for held in problem.clients] == [[1], [0, 2]]


def test_columns_may_be_parts_of_the_inputs():
    table = frame(columns(clients()))
    part = Examples.from_table(table, {"left": ["a", "b", "c"], "right": ["d"]}, TARGETS)
    assert part.inputs["left"].shape == (24, 3)
    problem = Problem.from_table(
        TwoParts, TASKS, table, inputs=(["a", "b", "c"], ["d"]), targets=TARGETS, client="hospital", test=table
    )
    whole = Problem.from_table(Net, TASKS, table, inputs=INPUTS, targets=TARGETS, client="hospital", test=table)
    assert torch.equal(trained(problem)[0], trained(whole)[0])


def test_a_column_may_hold_arrays_of_one_shape():
    table = frame({"image": list(np.zeros((3, 2, 2), np.uint8)), "y": [0, 1, 0]})
    assert Examples.from_table(table, "image", ["y"]).inputs.shape == (3, 2, 2)


def test_a_column_of_sequences_is_collated():
    table = frame({"tokens": [[1, 2, 3], [4], [5, 6]], "y": [0, 1, 0]})
    tokens, mask = Examples.from_table(table, "tokens", ["y"], collate=padded)[[0, 1]].inputs
    assert tokens.tolist() == [[1, 2, 3], [4, 0, 0]]
    assert mask.sum().item() == 4


# --- torch --------------------------------------------------------------------------------------------------


class Items(Dataset):
    def __init__(self, items):
        self.items = items
        self.reads = 0

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        self.reads += 1
        return self.items[i]


def pairs(part):
    x, (risk, stay) = part
    return Items([(x[i], (int(risk[i]), stay[i])) for i in range(len(x))])


@pytest.mark.parametrize("in_memory", [True, False])
def test_datasets_of_pairs_are_the_problem_of_their_arrays(in_memory):
    parts = [Examples.from_dataset(pairs(part), in_memory=in_memory) for part in clients()]
    problem = Problem.from_clients(Net, TASKS, parts, pairs(arrays(9, seed=9)))
    assert isinstance(problem.train.inputs, torch.Tensor if in_memory else Collated)
    assert torch.equal(trained(problem)[0], trained(expected())[0])


def test_clients_may_be_datasets():
    problem = Problem.from_clients(Net, TASKS, [pairs(part) for part in clients()], pairs(arrays(9, seed=9)))
    assert same(problem, expected())


def test_one_target_of_tensors():
    x, (risk, _) = arrays(6)
    part = Examples.from_dataset(TensorDataset(torch.from_numpy(x), torch.from_numpy(risk)))
    assert torch.equal(part.inputs, torch.from_numpy(x))
    assert part.targets[0].tolist() == risk.tolist()


def test_items_that_are_dicts_name_their_parts():
    x, (risk, stay) = arrays(6)
    items = Items([{"x": x[i], "z": x[i, :1], "n": 2, "r": risk[i], "s": float(stay[i])} for i in range(6)])
    part = Examples.from_dataset(items, inputs={"left": "x", "right": "z"}, targets={"risk": "r", "stay": "s"})
    assert torch.equal(part.inputs["left"], torch.from_numpy(x))
    assert part.inputs["right"].shape == (6, 1)
    assert part.targets[1].tolist() == stay.tolist()
    assert Examples.from_dataset(items, inputs=("x", ["n"]), targets=["r"]).inputs[1].shape == (6, 1)


def test_items_with_several_inputs():
    x, (risk, _) = arrays(6)
    part = Examples.from_dataset([((x[i, :3], x[i, 3:]), risk[i]) for i in range(6)])
    assert [leaf.shape for leaf in part.inputs] == [(6, 3), (6, 1)]


def test_items_of_different_lengths_are_collated():
    items = [(torch.ones(n, dtype=torch.int64), n % 2) for n in (3, 1, 2)]
    for in_memory in (True, False):
        part = Examples.from_dataset(items, collate=padded, in_memory=in_memory)
        assert part[[0, 2]].inputs[1].sum(dim=1).tolist() == [3, 2]


def test_inputs_that_are_not_held_are_read_for_every_minibatch():
    items = pairs(arrays(6))
    part = Examples.from_dataset(items, in_memory=False)
    before = items.reads
    assert len(part[[1, 4]]) == 2
    assert items.reads == before + 2


# --- HuggingFace and flwr-datasets --------------------------------------------------------------------------


def hub(table):
    return pytest.importorskip("datasets").Dataset.from_dict({name: list(values) for name, values in table.items()})


def test_a_dataset_of_the_hub_is_the_problem_of_its_arrays():
    table, test = hub(shuffled(clients())), hub(columns([arrays(9, seed=9)]))
    problem = Problem.from_table(Net, TASKS, table, inputs=INPUTS, targets=TARGETS, client="hospital", test=test)
    assert same(problem, expected())


def test_a_format_of_a_dataset_hides_no_column():
    datasets = pytest.importorskip("datasets")
    table, test = (datasets.Dataset.from_dict(columns(parts)) for parts in (clients(), [arrays(9, seed=9)]))
    table = table.with_format("torch", columns=["a"])
    problem = Problem.from_table(Net, TASKS, table, inputs=INPUTS, targets=TARGETS, client="hospital", test=test)
    assert problem.clients.sizes.tolist() == expected().clients.sizes.tolist()


def test_a_dataset_of_tokens_with_masks():
    tokens = [[1, 2, 3], [4, 5, 0]]
    table = hub({"input_ids": tokens, "attention_mask": [[1, 1, 1], [1, 1, 0]], "y": [0, 1], "z": [0.5, 1.5]})
    part = Examples.from_table(table, {"tokens": "input_ids", "mask": "attention_mask"}, ["y", "z"])
    assert part.inputs["tokens"].tolist() == tokens
    problem = Problem.from_clients(Words, TASKS, [part, part], part)
    for engine in ("sequential", "stacked"):
        assert torch.isfinite(trained(problem, engine)[0]).all()


def test_a_dataset_of_tokens_of_different_lengths():
    table = hub({"tokens": [[1, 2, 3], [4]], "mask": [[1, 1, 1], [1]], "y": [0, 1]})
    part = Examples.from_table(table, {"tokens": "tokens", "mask": "mask"}, ["y"], collate=padded)
    assert part[:2].inputs["mask"].tolist() == [[1, 1, 1], [1, 0, 0]]


def test_images_of_the_hub_are_arrays():
    pytest.importorskip("datasets")
    from datasets import Array3D, ClassLabel, Features

    images = np.arange(2 * 3 * 4 * 4, dtype=np.uint8).reshape(2, 3, 4, 4)
    features = Features({"image": Array3D((3, 4, 4), "uint8"), "label": ClassLabel(names=["cat", "dog"])})
    table = pytest.importorskip("datasets").Dataset.from_dict({"image": images, "label": [0, 1]}, features=features)
    part = Examples.from_table(table, "image", ["label"])
    assert torch.equal(part.inputs, torch.from_numpy(images))
    assert part.targets[0].tolist() == [0, 1]


def partitioners():
    module = pytest.importorskip("flwr_datasets.partitioner")
    return {
        "natural": module.NaturalIdPartitioner(partition_by="hospital"),
        "iid": module.IidPartitioner(num_partitions=3),
        "dirichlet": module.DirichletPartitioner(3, "at_risk", alpha=5.0, min_partition_size=1, seed=1),
        "size": module.LinearPartitioner(num_partitions=3),
        "pathological": module.PathologicalPartitioner(2, "at_risk", num_classes_per_partition=1),
    }


@pytest.mark.parametrize("kind", ["natural", "iid", "dirichlet", "size", "pathological"])
def test_every_partition_is_a_client(kind):
    partitioner = partitioners()[kind]
    partitioner.dataset = hub(shuffled(clients()))
    test = hub(columns([arrays(9, seed=9)]))
    problem = Problem.from_partitions(Net, TASKS, partitioner, inputs=INPUTS, targets=TARGETS, test=test)
    assert len(problem.train) == 24
    assert problem.clients.sizes.tolist() == [len(partitioner.load_partition(k)) for k in range(len(problem.clients))]
    if kind == "natural":
        assert sorted(problem.clients.sizes) == [5, 7, 12]
    for k in range(len(problem.clients)):
        held = problem.train[problem.clients[k]]
        assert held.targets[0].tolist() == list(partitioner.load_partition(k)["at_risk"])
    assert torch.isfinite(trained(problem)[0]).all()


# --- dicts of arrays ----------------------------------------------------------------------------------------


def test_a_dict_of_arrays_is_a_table():
    test = columns([arrays(9, seed=9)])
    problem = Problem.from_table(
        Net, TASKS, shuffled(clients()), inputs=INPUTS, targets=TARGETS, client="hospital", test=test
    )
    assert same(problem, expected())


def test_clients_may_be_numbers_or_of_several_types():
    table = {"x": np.zeros((4, 1)), "y": np.array([0, 1, 0, 1]), "who": np.array([20, 3, 20, 3])}
    tasks = [classification("y", 2)]
    problem = Problem.from_table(Net, tasks, table, inputs="x", targets={"y": "y"}, client="who", test=table)
    assert [held.tolist() for held in problem.clients] == [[1, 3], [0, 2]]
    mixed = table | {"who": np.array(["a", 3, "a", 4], dtype=object)}
    problem = Problem.from_table(Net, tasks, mixed, inputs="x", targets={"y": "y"}, client="who", test=table)
    assert problem.clients.sizes.tolist() == [1, 1, 2]


def test_clients_may_have_names_of_several_parts():
    table = {"x": np.zeros((4, 1)), "y": [0, 1, 0, 1], "who": [(2, 1), (1, 2), (2, 1), (1, 1)]}
    options = {"inputs": "x", "targets": {"y": "y"}, "client": "who", "test": table}
    problem = Problem.from_table(Net, [classification("y", 2)], table, **options)
    assert [held.tolist() for held in problem.clients] == [[3], [1], [0, 2]]


def test_clients_of_a_table_hold_out_examples_as_others_do():
    table = columns(clients())
    options = {"inputs": INPUTS, "targets": TARGETS, "client": "hospital", "validation": 0.25}
    problem = Problem.from_table(Net, TASKS, table, **options)
    other = Problem.from_clients(Net, TASKS, clients(), validation=0.25)
    assert problem.test is None
    for mine, theirs in ((problem.clients, other.clients), (problem.validation, other.validation)):
        assert [each.tolist() for each in mine] == [each.tolist() for each in theirs]


def test_real_numbers_of_a_table_are_classes_where_the_task_has_classes():
    table = {"x": np.zeros((2, 1)), "y": np.array([0.0, 1.0]), "z": np.array([1.0, 2.0]), "who": np.array([0, 1])}
    tasks = [classification("y", 2), regression("z", 1.0)]
    problem = Problem.from_table(Net, tasks, table, inputs="x", targets={"y": "y", "z": "z"}, client="who", test=table)
    assert problem.train.targets[0].dtype == torch.int64
    assert problem.train.targets[1].dtype == torch.float32
