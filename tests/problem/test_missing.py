"""Missing labels: how they are said, what examples know of them, and what is refused."""

import numpy as np
import pytest
import torch

from fedhv import Benchmark, Clients, Examples, InputError, Problem, Task, classification, multilabel, regression
from fedhv.problem.missing import rows
from fedhv.runs.federation import strata_columns

from .ward import Net, arrays

RISK, STAY, MARKS = classification("risk", 2), regression("stay", 0.5), multilabel("marks", 3)
X = np.zeros((4, 4), np.float32)
NAN = np.nan


def marked(task, targets, labelled=None):
    """A task's targets and mask once a benchmark has seen them."""
    examples = Examples.of(X, [targets], labelled=None if labelled is None else [labelled])
    train = Benchmark("b", Net, (task,), examples, examples).train
    return train.targets[0], None if train.labelled is None else train.labelled[0]


# --- how it is said -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "targets", "labelled", "kept"),
    [
        (STAY, [1.5, NAN, 2.0, NAN], None, [1.5, 0, 2.0, 0]),
        (STAY, [1.5, None, 2.0, None], None, [1.5, 0, 2.0, 0]),
        (regression("stay", 1.0, missing=-999), [1.5, -999, 2.0, NAN], None, [1.5, 0, 2.0, 0]),
        (RISK, [1, NAN, 0, NAN], None, [1, 0, 0, 0]),
        (RISK, [1, None, 0, None], None, [1, 0, 0, 0]),
        (classification("risk", 2, missing=-1), [1, -1, 0, -1], None, [1, 0, 0, 0]),
        (RISK, [1, 1, 0, 7], [True, False, True, False], [1, 0, 0, 0]),
        (RISK, [1, NAN, 0, 1], np.array([True, True, True, False]), [1, 0, 0, 0]),
        (Task("own", lambda o, t: t, lambda o, t: t), [1.5, NAN, 2.0, NAN], None, [1.5, 0, 2.0, 0]),
    ],
)
def test_a_missing_target_is_zero_and_masked(task, targets, labelled, kept):
    made, mask = marked(task, targets, labelled)
    assert made.tolist() == kept
    assert mask.tolist() == [True, False, True, False]
    assert made.is_floating_point() == (not task.whole)


@pytest.mark.parametrize(
    ("task", "targets"),
    [
        (MARKS, [[1, 0, NAN], [NAN, NAN, NAN], [1, 1, 0], [0, 0, 0]]),
        (multilabel("marks", 3, missing=-1), [[1, 0, -1], [-1, -1, -1], [1, 1, 0], [0, 0, 0]]),
        (regression("place", 1.0), [[1, 0, NAN], [NAN, NAN, NAN], [1, 1, 0], [0, 0, 0]]),
    ],
)
def test_entries_of_a_target_may_be_missing_one_by_one(task, targets):
    made, mask = marked(task, targets)
    assert made.tolist() == [[1, 0, 0], [0, 0, 0], [1, 1, 0], [0, 0, 0]]
    assert mask.tolist() == [[True, True, False], [False] * 3, [True] * 3, [True] * 3]
    assert rows(mask).tolist() == [True, False, True, True]


def test_a_mask_of_examples_is_one_of_all_their_entries():
    _, mask = marked(MARKS, np.ones((4, 3), np.int64), [True, True, False, True])
    assert mask.tolist() == [[True] * 3, [True] * 3, [False] * 3, [True] * 3]


@pytest.mark.parametrize(
    "values",
    [
        lambda pandas: pandas.Series([1, None, 0, pandas.NA], dtype="Int64"),
        lambda pandas: pandas.Series([1, None, 0, None], dtype="float64"),
        lambda pandas: pandas.Series([True, None, False, None], dtype="boolean"),
        lambda pandas: pandas.Series([1, None, 0, pandas.NA], dtype=object),
        lambda pandas: pandas.Series([1, None, 0, None], dtype="int64[pyarrow]"),
    ],
)
def test_missing_values_of_pandas(values):
    pandas = pytest.importorskip("pandas")
    series = values(pandas)
    series.index = [7, 3, 1, 9]
    made, mask = marked(RISK, series)
    assert made.tolist() == [1, 0, 0, 0]
    assert made.dtype == torch.int64
    assert mask.tolist() == [True, False, True, False]
    frame = pandas.DataFrame({"x": [0.0] * 4, "y": series.to_numpy()})
    test = pandas.DataFrame({"x": [0.0], "y": [1.0]})  # complete, and real numbers nevertheless
    problem = Problem.from_table(Net, [RISK], frame[:3], inputs=["x"], targets={"risk": "y"}, client="x", test=test)
    assert problem.train.labelled[0].tolist() == [True, False, True]
    assert problem.test.labelled is None


def test_missing_values_of_a_dataset_of_the_hub():
    hub = pytest.importorskip("datasets").Dataset.from_dict({"x": [0.0] * 4, "y": [1, None, 0, None]})
    part = Examples.from_table(hub, ["x"], ["y"])
    made, mask = marked(RISK, part.targets[0])
    assert made.tolist() == [1, 0, 0, 0]
    assert mask.tolist() == [True, False, True, False]


def test_items_of_a_dataset_may_lack_a_target():
    part = Examples.from_dataset([(X[i], (y, 2.0)) for i, y in enumerate([1, None, 0, None])])
    assert marked(RISK, part.targets[0])[1].tolist() == [True, False, True, False]
    part = Examples.from_dataset([(X[i], (None, 2.0)) for i in range(4)])
    assert part.targets[0].isnan().all()


def test_none_is_a_task_that_a_client_has_no_label_of():
    x, (risk, stay) = arrays(6)
    marks, place = np.ones((6, 3), np.int64), np.ones((6, 2), np.float32)
    tasks = [RISK, STAY, MARKS, regression("place", 1.0)]
    whole = (x, [risk, stay, marks, place])
    problem = Problem.from_clients(Net, tasks, [(x, [None] * 3 + [place]), whole, (x, [risk] + [None] * 3)], whole)
    counts = [[int(rows(mask)[problem.clients[k]].sum()) for mask in problem.train.labelled] for k in range(3)]
    assert counts == [[0, 0, 0, 6], [6, 6, 6, 6], [6, 0, 0, 0]]
    assert [tuple(t.shape) for t in problem.train.targets] == [(18,), (18,), (18, 3), (18, 2)]
    assert problem.train.targets[0].dtype == torch.int64
    assert problem.test.labelled is None


# --- complete labels cost nothing ---------------------------------------------------------------------------


@pytest.mark.parametrize("labelled", [None, [None], [np.ones(4, bool)]])
def test_complete_labels_have_no_mask_and_stay_the_same_tensor(labelled):
    for task in (RISK, classification("risk", 2, missing=-1)):
        examples = Examples.of(X, [np.array([0, 1, 1, 0])], labelled=labelled)
        train = Benchmark("b", Net, (task,), examples, examples).train
        assert train.labelled is None
        assert train.targets[0] is examples.targets[0]


def test_masks_go_with_their_examples():
    examples = Examples.of(X, [[1.0, NAN, 2.0, NAN], [0, 1, 0, 1]])
    train = Benchmark("b", Net, (STAY, RISK), examples, examples).train
    assert train.labelled[1] is None
    some = train[[1, 2]].to("cpu")
    assert some.labelled[0].tolist() == [False, True]
    assert some.with_inputs(some.inputs + 1).labelled is some.labelled
    assert train.fold(2, 2).labelled[0].shape == (2, 2)


def test_dividing_a_benchmark_keeps_its_masks():
    examples = Examples.of(X, [[1, -1, 0, -1]])
    test = Examples.of(X, [[1, 0, 0, 1]])
    benchmark = Benchmark("b", Net, (classification("risk", 2, missing=-1),), examples, test)
    problem = Problem.divide(benchmark, Clients.of([[0, 1], [2, 3]]))
    assert problem.train.labelled[0].tolist() == [True, False, True, False]
    assert problem.train.labels(0).tolist() == [1, -1, 0, -1]
    assert [each.tolist() for each in strata_columns(benchmark, "all")] == [[1, -1, 0, -1]]


def test_strata_of_several_labels_know_what_is_missing():
    examples = Examples.of(X, [[[1, 0, NAN], [NAN, NAN, NAN], [1, 1, 0], [0, 0, 0]]])
    columns = strata_columns(Benchmark("b", Net, (MARKS,), examples, examples), ("marks.2",))
    assert [each.tolist() for each in columns] == [[-1, -1, 0, 0]]


# --- what is refused ----------------------------------------------------------------------------------------


def made(clients, tasks=(RISK, STAY), test=None):
    return Problem.from_clients(Net, tasks, clients, (X, [[0, 1, 0, 1], [1.0, 2, 3, 4]]) if test is None else test)


COMPLETE = (X, [[0, 1, 0, 1], [1.0, 2, 3, 4]])
NOTHING = (X, [[NAN] * 4, None])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: made([(X, [None, [1.0, 2, 3, 4]])]), r"no client has a label of task 'risk'\. Leave the task out"),
        (lambda: made([(X, [[NAN] * 4, [1.0, 2, 3, 4]])] * 2), r"no client has a label of task 'risk'\."),
        (lambda: made([COMPLETE, NOTHING]), r"at least one label\. Found none with client 1; leave it out\.$"),
        (
            lambda: made([COMPLETE], test=(X, [[0, 1, 0, 1], None])),
            r"test examples: expected labels of every task\. Found none of task 'stay'; leave",
        ),
        (
            lambda: Problem.divide(
                Benchmark("b", Net, (STAY,), Examples.of(X, [[1.0, NAN, NAN, NAN]]), Examples.of(X, [[1.0] * 4])),
                Clients.of([[1, 2], [3]]),
            ),
            r"no client has a label of task 'stay'\.",
        ),
        (
            lambda: Examples.of(X, [[0, 1, 0, 1]], labelled=[[True] * 3]),
            r"The mask of task 0 should have shape \(4,\), .* Found \(3,\)\.$",
        ),
        (
            lambda: Examples.of(X, [np.ones((4, 3))], labelled=[np.ones((4, 2), bool)]),
            r"shape \(4,\), or that of its targets, \(4, 3\)\. Found \(4, 2\)\.$",
        ),
        (
            lambda: Examples.of(X, [[0, 1, 0, 1]], labelled=[[1, 0, 1, 1]]),
            r"should hold booleans, True where labelled\. Found torch.int64\.$",
        ),
        (
            lambda: Examples.of(X, [[0, 1, 0, 1]], labelled=np.ones(4, bool)),
            r"`labelled` should be a list, a mask or None for every task\. Found a ndarray\.$",
        ),
        (
            lambda: Examples.of(X, [[0, 1, 0, 1]], labelled=[None, None]),
            r"`labelled` should have a mask or None for every task \(1\)\. Found 2 of them\.$",
        ),
        (
            lambda: classification("risk", 3, missing=2),
            r"`missing` should be a whole number that is not a class\. Found 2",
        ),
        (lambda: classification("risk", 3, missing=0.5), r"`missing` should be a whole number that is not a class"),
        (
            lambda: multilabel("marks", 3, missing=0),
            r"`missing` should be a whole number other than 0 and 1\. Found 0\.$",
        ),
        (lambda: marked(RISK, [0.5, NAN, 1, 0]), r"whole-number class labels\. Found dtype torch.float32"),
        (lambda: marked(RISK, [2, NAN, 1, 0]), r"labels from 0 to 1\. Found 0 to 2\.$"),
        (lambda: marked(MARKS, [[2, 0, NAN]] * 4), r"labels 0 or 1\. Found other values"),
        (lambda: marked(STAY, [np.inf, NAN, 1, 0]), r"finite targets"),
        (lambda: marked(RISK, [0, -1, 1, 0]), r"labels from 0 to 1\. Found -1 to 1\.$"),
    ],
)
def test_it_is_refused_in_one_line(call, said):
    with pytest.raises(InputError, match=said) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_node_may_lack_labels_that_other_nodes_have():
    from fedhv.flower.node import Node

    node = Node(model=Net, tasks=[RISK, STAY], examples=(X, [None, [1.0, 2, 3, 4]]))
    assert not node.problem().train.labelled[0].any()
