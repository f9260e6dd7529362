"""What people with tables and datasets do by mistake: one line that says what was found and what to do."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from fedhv import Benchmark, Clients, Examples, InputError, Problem, classification, multilabel, regression

from .ward import Net, arrays

X = np.zeros((4, 4), np.float32)
TABLE = {
    "age": [30.0, 40.0, 50.0, 60.0],
    "bmi": [20.0, np.nan, 30.0, np.nan],
    "sex": ["f", "m", "f", "m"],
    "kind": [0, 1, 0, 1],
    "days": [1.0, 2.0, 3.0, 4.0],
    "hospital": ["a", "b", "a", "b"],
}


def frame(**changes):
    return pytest.importorskip("pandas").DataFrame(TABLE | changes)


def hub(**changes):
    return pytest.importorskip("datasets").Dataset.from_dict(TABLE | changes)


def pandas():
    return pytest.importorskip("pandas")


def made(table, test=None, tasks=None, **changes):
    options = {"inputs": ["age"], "targets": {"kind": "kind"}, "client": "hospital"} | changes
    tasks = [classification("kind", 2)] if tasks is None else tasks
    return Problem.from_table(Net, tasks, table, test=table if test is None else test, **options)


def dates():
    return pandas().to_datetime(["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04"])


TABLES = [
    (lambda: made(frame(), inputs=["aeg"]), r"^Unknown column 'aeg'\. Did you mean 'age'\?$"),
    (lambda: made(frame(), inputs="aeg"), r"^Unknown column 'aeg'"),
    (lambda: made(frame(), targets={"kind": "kid"}), r"^Unknown column 'kid'\. Did you mean 'kind'\?$"),
    (lambda: made(frame(), client="ward"), r"^Unknown column 'ward'\. Known: age, bmi, days, hospital, kind, sex\.$"),
    (lambda: made(frame(), test=frame().drop(columns="kind")), r"^Unknown column 'kind'"),
    (
        lambda: made(frame(), inputs=["age", "sex"]),
        r"^Column 'sex' should hold numbers\. Found strings such as 'f'; encode them, e\.g\. by `pandas.to_numeric`",
    ),
    (lambda: made(frame(kind=["no", "yes", "no", "yes"])), r"^Column 'kind' should hold numbers\. Found strings"),
    (
        lambda: made(frame(age=[30, "forty", 50, 60])),
        r"^Column 'age' should hold numbers\. Found strings such as 'forty'; encode",
    ),
    (
        lambda: made(frame(age=pandas().Categorical(["x", "y", "x", "y"]))),
        r"^Column 'age' should hold numbers\. Found categories; encode them, e\.g\. by `\.cat\.codes`\.$",
    ),
    (
        lambda: made(frame(age=dates())),
        r"^Column 'age' should hold numbers\. Found datetime64\[.*\]; convert it to a n",
    ),
    (lambda: made(frame(age=[1j, 2, 3, 4])), r"^Column 'age' should hold numbers\. Found complex128; split it"),
    (
        lambda: made(frame(age=[{}, {}, {}, {}])),
        r"^Column 'age' should be an array of numbers\. Found \{\}; encode or convert them\.$",
    ),
    (
        lambda: made(frame(), inputs=["age", "bmi"]),
        r"^Input column 'bmi' should have no missing values\. Found 2 missing values; fill them in, ",
    ),
    (lambda: made(frame(), inputs="bmi"), r"training examples: expected finite inputs\. Found NaN"),
    (lambda: made(frame(), inputs=[]), r"^A table's inputs should have at least one column\. Found none\.$"),
    (
        lambda: made(frame(age=list(np.zeros((4, 2))))),
        r"^Column 'age' should hold one number per row\. Found arrays; name it alone, as a string\.$",
    ),
    (
        lambda: made(frame(age=[[1], [1, 2], [1], [1]]), inputs="age"),
        r"different shapes, \(1,\) and \(2,\); give `collate=fedhv.padded`",
    ),
    (
        lambda: made(frame(hospital=["a", None, "b", None])),
        r"^Column 'hospital' should name every row's client\. Found 2 rows without one; fill them in or leave",
    ),
    (
        lambda: made(frame().assign(ward="x").rename(columns={"ward": "hospital"})),
        r"^Column 'hospital' should be one column\. Found several of that name; rename them\.$",
    ),
    (lambda: made(frame(hospital=[["a"]] * 4)), r"^Column 'hospital' .* by a number or text\. Found a list\.$"),
    (
        lambda: made(TABLE | {"hospital": ["a", "b", "a"]}),
        r"^Column 'hospital' should name the client of each of the 4 rows\. Found 3 rows\.$",
    ),
    (lambda: made(TABLE | {"hospital": ["a"] * 5}), r"client of each of the 4 rows\. Found 5 rows\.$"),
    (
        lambda: made(TABLE | {"days": [1.0, 2.0]}, inputs=["age", "days"]),
        r"^A table's columns should have one length\. Found 4 rows in 'age', 2 in 'days'\.$",
    ),
    (lambda: made(frame(), client=np.arange(4)), r"^A column should be given by its name\. Found a ndarray; add it to"),
    (lambda: made(frame(), targets={"kind": frame()["kind"]}), r"^A column should be .* name\. Found a Series; add it"),
    (lambda: made(frame(), tasks=classification("kind", 2)), r"should be a list\. Found a Task; put it in brackets\.$"),
    (lambda: made(frame(), validation="0.2"), r"^`validation` should be in \[0, 1\), the share .* Found '0\.2'\.$"),
    (lambda: made(frame(), targets={}), r"^`targets` should name a column for every task, \['kind'\]\. Found \[\]\.$"),
    (lambda: made(frame(), targets="kind"), r"^`targets` should name a column for every task, .* Found 'kind'\.$"),
    (
        lambda: made(frame(), targets={"kind": "kind", "stay": "days"}),
        r"for every task, \['kind'\]\. Found \['kind', 'stay'\]\.$",
    ),
    (lambda: made(frame(kind=[0, 1, 2, 1])), r"Task 'kind' expects labels from 0 to 1\. Found 0 to 2\.$"),
    (
        lambda: made(frame(), tasks=[multilabel("kind", 3)], targets={"kind": ["kind", "days"]}),
        r"Task 'kind' expects 3 labels per example\. Found shape \(4, 2\)",
    ),
    (
        lambda: made(pandas().concat([frame(), frame()[["age"]]], axis=1)),
        r"^Column 'age' should be one column\. Found several of that name; rename them\.$",
    ),
    (lambda: made(frame().head(0)), r"training examples: expected at least one\. Found none"),
    (
        lambda: made(np.zeros((4, 3))),
        r"^A table should be a DataFrame, a datasets\.Dataset or a dict of columns\. Found a",
    ),
    (
        lambda: made(TABLE | {"age": np.zeros((4, 2))}),
        r"^Column 'age' should hold one number per row\. Found arrays; name it alone, as a string\.$",
    ),
    (lambda: made(TABLE, inputs=["sex"]), r"^The column 'sex' should be an array of numbers\. Found <U1; encode or c"),
    (lambda: made(TABLE, inputs=["bmi"]), r"^Input column 'bmi' should have no missing values"),
    (lambda: made(TABLE, inputs=[]), r"at least one column\. Found none"),
    (lambda: made(hub(), inputs=["aeg"]), r"^Unknown column 'aeg'\. Did you mean 'age'\?$"),
    (
        lambda: made(hub(), inputs="sex"),
        r"^Column 'sex' should hold numbers\. Found text; make token ids or class numbers of it first, ",
    ),
    (
        lambda: made(hub(age=[[1], [1, 2], [1], [1]]), inputs="age"),
        r"^The column 'age' .* different shapes, .*; give `collate=fedhv.padded`",
    ),
    (
        lambda: made(__import__("datasets").DatasetDict(train=hub())),
        r"^A table should be one split of a dataset\. Found a DatasetDict; give e\.g\. dataset\['train'\]\.$",
    ),
    (
        lambda: made(hub().to_iterable_dataset()),
        r"^A table should have all its rows\. Found a IterableDataset; load it without `streaming=True`\.$",
    ),
]


@pytest.mark.parametrize(("call", "said"), TABLES)
def test_tables(call, said):
    pytest.importorskip("pandas")
    pytest.importorskip("datasets")
    with pytest.raises(InputError, match=said) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_strings_in_a_series_are_refused():
    series = pandas().Series(["yes", "no", "yes", "no"], index=[4, 5, 6, 7])
    with pytest.raises(
        InputError, match=r"^The targets should hold numbers\. Found strings such as 'yes'; encode them"
    ):
        Examples.of(X, [series])


# --- torch datasets -----------------------------------------------------------------------------------------


class Endless(IterableDataset):
    def __iter__(self):
        yield X[0], 1


class Random(TensorDataset):
    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        return x + torch.rand(()), y


class Broken(TensorDataset):
    def __getitem__(self, i):
        if i == 2:
            raise OSError("no such image")
        return super().__getitem__(i)


PAIRS = TensorDataset(torch.zeros(4, 4), torch.tensor([0, 1, 0, 1]))
DICTS = [{"x": X[i], "y": i % 2} for i in range(4)]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Examples.from_dataset(Endless()), r"items by number .* Found a Endless; give list\(dataset\)\.$"),
        (lambda: Examples.from_dataset(iter(PAIRS)), r"items by number .* give list\(dataset\)"),
        (lambda: Examples.from_dataset(DataLoader(PAIRS)), r"Found a DataLoader; give its dataset, loader\.dataset\.$"),
        (lambda: Examples.from_dataset([]), r"^A dataset should have at least one item\. Found none\.$"),
        (
            lambda: Examples.from_dataset(Random(*PAIRS.tensors)),
            r"not change between readings\. Found item 0 changed; "
            r"move random transforms into the problem's `augment`\.$",
        ),
        (
            lambda: Examples.from_dataset(Broken(*PAIRS.tensors)),
            r"^Item 2 of the dataset could not be read\. Found OSError: no such image$",
        ),
        (
            lambda: Examples.from_dataset(TensorDataset(*PAIRS.tensors, torch.zeros(4))),
            r"items should be \(inputs, target\), \(inputs, \(target, target\)\) or dicts\. Found a tuple of 3\.$",
        ),
        (lambda: Examples.from_dataset(X), r"or dicts\. Found a ndarray\.$"),
        (lambda: Examples.from_dataset(DICTS), r"^Name the targets among the items' keys \['x', 'y'\]: `targets=`\.$"),
        (
            lambda: Examples.from_dataset(DICTS, targets=["y"]),
            r"items are dicts with keys \['x', 'y'\]\. Name the inputs and the targets",
        ),
        (lambda: Examples.from_dataset(DICTS, inputs="z", targets=["y"]), r"^Unknown key of the dataset's items 'z'"),
        (
            lambda: Examples.from_dataset(PAIRS, inputs="x", targets=["y"]),
            r"`inputs` and `targets` name keys of dicts\. Found items that are a tuple\.$",
        ),
        (
            lambda: Examples.from_dataset([(X[0], (1, 2)), (X[1], 1)]),
            r"^Items should have targets for one number of tasks\. Found 2, then 1\.$",
        ),
        (
            lambda: Examples.from_dataset([(np.zeros(n), 1) for n in (2, 3)]),
            r"different shapes, \(2,\) and \(3,\); give `collate=fedhv.padded`, or pad them\.$",
        ),
        (lambda: Examples.from_dataset([(X[0], "cat"), (X[1], "dog")]), r"targets should be an array of numbers"),
        (
            lambda: Problem.from_clients(Net, [regression("y", 1.0)] * 2, [PAIRS], PAIRS),
            r"client 0's examples: expected targets for 2 tasks\. Found 1 target array\.$",
        ),
    ],
)
def test_datasets(call, said):
    with pytest.raises(InputError, match=said) as caught:
        call()
    assert "\n" not in str(caught.value)


# --- partitioners -------------------------------------------------------------------------------------------


def partitioned(partitioner):
    return Problem.from_partitions(
        Net, [classification("kind", 2)], partitioner, inputs=["age"], targets={"kind": "kind"}, test=hub()
    )


def test_partitioners():
    module = pytest.importorskip("flwr_datasets.partitioner")
    with pytest.raises(InputError, match=r"Found none; set `partitioner\.dataset` first\.$"):
        partitioned(module.IidPartitioner(num_partitions=2))
    with pytest.raises(InputError, match=r"Found a list; of a FederatedDataset give fds\.partitioners\['train'\]\.$"):
        partitioned([hub()])
    too_many = module.DirichletPartitioner(4, "nothing", alpha=0.1)
    too_many.dataset = hub()
    with pytest.raises(InputError, match=r"^The partitioner could not divide its dataset\. Found "):
        partitioned(too_many)


# --- arrays -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Examples.of([[1, 2], [3]], [[0, 1]]), r"^The inputs .* shapes, \(2,\) and \(1,\); give `collate=fed"),
        (lambda: Examples.of({"a": 3.0}, [[0, 1]]), r"^The inputs 'a' should be an array, one entry for every example"),
        (lambda: Examples.of(np.array(["a", "b"]), [[0, 1]]), r"^The inputs should be an array of numbers\. Found <U1"),
        (
            lambda: Examples.of(np.array([{}, None], dtype=object), [[0, 1]]),
            r"^The inputs should be an array of numbers\. Found \{\}; encode or convert them\.$",
        ),
        (
            lambda: Examples.of((each for each in X), [[0, 1, 0, 1]]),
            r"array of numbers\. Found generator; encode or conv",
        ),
        (lambda: Examples.of(X, [[None, "a", 1, 0]]), r"^The targets should be an array of numbers\. Found 'a'"),
        (
            lambda: Problem.from_clients(Net, [classification("kind", 2)], [(X, {"kind": [0, 1, 0, 1]})], arrays(3)),
            r"the targets of client 0's examples should be a list, an array for every task\. Found a dict\.$",
        ),
    ],
)
def test_arrays(call, said):
    with pytest.raises(InputError, match=said):
        call()


def test_frames_of_clients_with_other_columns_are_refused():
    one, other = (pandas().DataFrame(X, columns=list(names)) for names in ("abcd", "dcba"))
    tasks, y = [classification("kind", 2)], [[0, 1, 0, 1]]

    def call(*inputs):
        return Problem.from_clients(Net, tasks, [(x, y) for x in inputs[:-1]], (inputs[-1], y))

    said = (
        r"same columns in the same order\. Found \['d', 'c', 'b', 'a'\] with client 1, \['a', 'b', 'c', 'd'\] with cl"
    )
    with pytest.raises(InputError, match=said):
        call(one, other, one)
    with pytest.raises(InputError, match=r"Found \['d', .* with the test examples, \['a', .* with client 0\.$"):
        call(one, one, other)
    with pytest.raises(InputError, match=r"Found \['d', .* with client 1, \['a'"):
        call({"x": one}, {"x": other}, {"x": one})
    assert len(call(one, X, one).train) == 8


@pytest.mark.parametrize(
    ("lists", "said"),
    [
        ([[True, False, True]], r"whole numbers\. Found bool; give numpy\.flatnonzero\(mask\)\.$"),
        ([[0.5, 1.0]], r"^A client's examples should be a list of whole numbers\. Found float64\.$"),
        ([["a"]], r"Found <U1\.$"),
        ([3], r"Found int64 of shape \(\)\.$"),
    ],
)
def test_what_is_no_list_of_indices_is_refused(lists, said):
    with pytest.raises(InputError, match=said):
        Clients.of(lists)
    assert Clients.of([[], [1]]).sizes.tolist() == [0, 1]


def test_benchmarks_have_examples_and_problems_clients():
    tasks = [classification("kind", 2)]
    with pytest.raises(
        InputError, match=r"expected Examples\. Found a tuple; make them by Examples\.of\(inputs, targets"
    ):
        Benchmark("mine", Net, tasks, (X, [[0, 1, 0, 1]]), None)
    examples = Examples.of(X, [[0, 1, 0, 1]])
    with pytest.raises(InputError, match=r"should be made by Clients\.of\. Found a list; give Clients\.of\(…\)\.$"):
        Problem.divide(Benchmark("mine", Net, tasks, examples, examples), [[0, 1], [2, 3]])
