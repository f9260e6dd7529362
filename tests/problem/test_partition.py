"""Partitions: exact quotas, no example twice with a client, always an end, the same everywhere."""

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import Small

from fedhv import Benchmark, Clients, Examples, InputError, classification, multilabel, partition
from fedhv.runs.federation import FederationSettings, strata_columns


def labels(n, classes=10, seed=0):
    return np.random.default_rng(seed).integers(classes, size=n)


def shares(clients, column, classes=10):
    """For every client the share of each label."""
    counts = np.stack([np.bincount(column[held], minlength=classes) for held in clients])
    return counts / counts.sum(axis=1, keepdims=True)


# --- what always holds ------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(st.data(), st.integers(1, 60), st.integers(1, 8), st.sampled_from([1e-3, 0.1, 1.0, 100.0]), st.integers(0, 99))
def test_every_client_gets_exactly_its_quota_and_nothing_twice(data, n, classes, alpha, seed):
    # quotas up to everything there is, for up to eight clients: often far more than there is in total
    sizes = data.draw(st.lists(st.integers(1, n), min_size=1, max_size=8))
    columns = [labels(n, classes, seed), labels(n, 2, seed + 1)][: data.draw(st.integers(0, 2))]
    clients = partition(sizes, n, columns, alpha, seed)
    assert clients.sizes.tolist() == sizes
    for held, size in zip(clients, sizes, strict=True):
        assert len(set(held.tolist())) == size
        assert held.min() >= 0
        assert held.max() < n


@pytest.mark.parametrize("columns", [[], [labels(1000)]])
def test_no_example_is_given_twice_before_every_example_of_its_stratum_is_given(columns):
    clients = partition(np.full(10, 10), 1000, columns, alpha=100.0)
    assert len(np.unique(clients.indices)) == 100


@pytest.mark.parametrize("alpha", [0.01, 0.3, 10.0])
def test_it_ends_when_clients_ask_for_more_than_there_is(alpha):
    clients = partition(np.full(50, 100), 100, [labels(100)], alpha)
    assert all(sorted(held.tolist()) == list(range(100)) for held in clients)


def test_it_ends_when_every_example_is_a_stratum_of_its_own():
    clients = partition([7, 300, 41], 300, [np.arange(300)], 0.1)
    assert clients.sizes.tolist() == [7, 300, 41]


def test_iid_clients_share_all_examples_out_evenly():
    clients = partition([100, 300, 600], 1000)
    assert sorted(clients.indices.tolist()) == list(range(1000))


def test_iid_clients_see_every_label_in_the_populations_proportion():
    column = labels(20_000)
    skew = shares(partition(np.full(10, 2000), 20_000), column)
    np.testing.assert_allclose(skew, 0.1, atol=0.03)


def test_when_the_examples_run_out_they_are_shared_equally():
    # 30 clients of 10 among 100 examples, IID: everyone is held three times
    clients = partition(np.full(30, 10), 100)
    assert (np.bincount(clients.indices, minlength=100) == 3).all()


# --- skew -------------------------------------------------------------------------------------------------


def test_skew_falls_as_alpha_rises():
    column = labels(20_000)
    largest = [
        shares(partition(np.full(50, 200), 20_000, [column], alpha), column).max(axis=1).mean()
        for alpha in (0.01, 0.1, 1.0, 10.0, 1000.0)
    ]
    assert largest == sorted(largest, reverse=True)
    assert largest[0] > 0.9
    assert largest[-1] < 0.15


def test_shares_have_the_mean_and_variance_of_the_dirichlet_distribution():
    # Dirichlet(α, …, α) over S strata: mean 1/S, variance (S − 1)/(S²(Sα + 1)) = 0.12 for S = 2, α = 0.54
    column = labels(200_000, 2)
    first = shares(partition(np.full(1000, 100), 200_000, [column], 0.54), column, 2)[:, 0]
    assert first.mean() == pytest.approx(0.5, abs=0.04)
    assert first.var() == pytest.approx(0.12, abs=0.015)


# --- strata -----------------------------------------------------------------------------------------------


def two_task_benchmark(strata=None):
    train = Examples.of(np.zeros((600, 6), np.float32), (labels(600, 3, 0), labels(600, 4, 1)))
    tasks = (classification("first", 3), classification("second", 4))
    return Benchmark("b", Small, tasks, train, train[:4], strata=strata or {})


def distinct(columns):
    return len({tuple(int(column[i]) for column in columns) for i in range(len(columns[0]))})


def test_all_strata_are_the_combinations_of_all_labels():
    columns = strata_columns(two_task_benchmark(), "all")
    assert distinct(columns) == 12


def test_first_strata_are_the_first_label_alone():
    (column,) = strata_columns(two_task_benchmark(), "first")
    assert (column == labels(600, 3, 0)).all()


def test_strata_can_be_any_label_columns_by_name():
    (column,) = strata_columns(two_task_benchmark(), ("second",))
    assert (column == labels(600, 4, 1)).all()
    both = strata_columns(two_task_benchmark({"x": labels(600, 2, 5), "y": labels(600, 2, 6)}), ("y", "x"))
    assert (both[0] == labels(600, 2, 6)).all()
    assert distinct(both) == 4


def test_every_attribute_of_a_multilabel_task_is_a_column():
    bits = np.random.default_rng(0).integers(2, size=(50, 3)).astype(np.float32)
    examples = Examples.of(np.zeros((50, 6), np.float32), (torch.from_numpy(bits),))
    benchmark = Benchmark("b", Small, (multilabel("face", 3),), examples, examples)
    assert len(strata_columns(benchmark, "all")) == 3
    (column,) = strata_columns(benchmark, ("face.2",))
    assert (column == bits[:, 2]).all()


def test_an_unknown_stratum_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"'secnd'.*Did you mean 'second'"):
        strata_columns(two_task_benchmark(), ("secnd",))


def test_strata_decide_which_label_is_skewed():
    benchmark = two_task_benchmark()
    first, second = (targets.numpy() for targets in benchmark.train.targets)
    clients = FederationSettings(20, 5, 30, alpha=0.01, strata=("second",)).divide(benchmark)
    assert shares(clients, second, 4).max(axis=1).mean() > 0.9
    assert shares(clients, first, 3).max(axis=1).mean() < 0.6


def test_a_federation_may_give_every_client_its_own_size():
    clients = FederationSettings(3, 2, (5, 10, 100)).divide(two_task_benchmark())
    assert clients.sizes.tolist() == [5, 10, 100]


def test_an_iid_federation_ignores_the_labels():
    benchmark = two_task_benchmark()
    iid = FederationSettings(3, 2, 200, partition="iid", alpha=1e-3).divide(benchmark)
    assert sorted(iid.indices.tolist()) == list(range(600))


# --- reproducibility and scale ----------------------------------------------------------------------------


def digest(clients: Clients) -> str:
    return hashlib.sha256(clients.indices.astype("<i8").tobytes() + clients.offsets.astype("<i8").tobytes()).hexdigest()


def test_the_same_seed_gives_the_same_partition_on_every_machine():
    column = np.arange(5000) * 7919 % 10
    clients = partition(np.arange(1, 101), 5000, [column, np.arange(5000) % 3], 0.3, seed=10)
    assert digest(clients) == GOLDEN_DIRICHLET
    assert digest(partition(np.arange(1, 101), 5000, seed=10)) == GOLDEN_IID


def test_another_seed_gives_another_partition():
    column = labels(1000)
    assert digest(partition([50] * 4, 1000, [column], 0.3, 1)) != digest(partition([50] * 4, 1000, [column], 0.3, 2))


def test_the_values_of_labels_do_not_matter_only_their_order():
    column = labels(1000)
    names = np.array([f"class {label}" for label in range(10)])[column]
    of_numbers, of_names, of_others = (partition([50] * 4, 1000, [c], 0.3) for c in (column, names, 17 + column**3))
    assert digest(of_numbers) == digest(of_names) == digest(of_others)


def test_a_million_examples_go_to_ten_thousand_clients():
    columns = [labels(1_000_000, 10, 0), labels(1_000_000, 10, 1)]
    clients = partition(np.full(10_000, 100), 1_000_000, columns, 0.3)
    assert clients.sizes.tolist() == [100] * 10_000


# --- bad input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[], [0], [5, -1], [101], [[1, 2]]])
def test_quotas_outside_of_one_to_all_are_refused(sizes):
    with pytest.raises(InputError, match="between 1 and 100 examples"):
        partition(sizes, 100)


@pytest.mark.parametrize("alpha", [None, 0.0, -1.0, float("nan"), float("inf")])
def test_a_concentration_that_is_not_positive_is_refused(alpha):
    with pytest.raises(InputError, match="alpha"):
        partition([5], 100, [labels(100)], alpha)


def test_a_label_column_of_another_length_is_refused():
    with pytest.raises(InputError, match="100 entries"):
        partition([5], 100, [labels(99)], 0.3)


GOLDEN_DIRICHLET = "ec7c3ed6a23ddda0a5035c3d9dc42442b75775b3a69cdb3fc048357e2d1f455f"
GOLDEN_IID = "76bfe6f5bb47e450849fd7738489fef46979460109aa0ffa269c8472d05b32b6"
