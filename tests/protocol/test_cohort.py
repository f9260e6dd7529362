"""Who takes part in a round, and in which order a client sees its examples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhv import InputError, LocalTraining
from fedhv.problem.random import Purpose, stream
from fedhv.protocol.cohort import minibatches, report_positions, sample_cohort


def rng(seed=0):
    return stream(seed, Purpose.MINIBATCHES)


# --- cohorts ----------------------------------------------------------------------------------------------


@given(st.integers(1, 60), st.data(), st.integers(0, 1000), st.integers(0, 1000))
def test_a_cohort_is_so_many_different_clients_in_ascending_order(population, data, seed, round):
    participants = data.draw(st.integers(1, population))
    chosen = list(sample_cohort(seed, round, population, participants, LocalTraining()).clients)
    assert len(chosen) == participants
    assert chosen == sorted(set(chosen))
    assert all(0 <= k < population for k in chosen)


def test_where_clients_come_and_go_those_who_are_there_are_drawn_from():
    there = [3, 5, 8, 13, 21]
    cohort = sample_cohort(0, 4, there, 3, LocalTraining())
    assert set(cohort.clients) < set(there)
    assert list(cohort.clients) == [there[k] for k in sample_cohort(0, 4, len(there), 3, LocalTraining()).clients]
    assert list(sample_cohort(0, 4, there, 9, LocalTraining()).clients) == there


def test_cohorts_by_size_are_a_function_of_seed_and_round():
    sizes = np.array([1, 2, 3, 4, 90])

    def drawn(seed, round, population=5):
        return list(sample_cohort(seed, round, population, 2, LocalTraining(), sizes=sizes).clients)

    found = [drawn(3, t) for t in range(400)]
    assert found == [drawn(3, t) for t in range(400)]
    assert all(chosen == sorted(set(chosen)) for chosen in found)
    assert found != [drawn(4, t) for t in range(400)]
    there = [11, 13, 17, 19, 23]  # where clients come and go
    assert drawn(3, 7, there) == [there[k] for k in drawn(3, 7)]
    assert sample_cohort(3, 7, 5, 2, LocalTraining(), sizes=sizes).select == "size"
    assert sample_cohort(3, 7, 5, 2, LocalTraining()).select == "uniform"


def test_a_client_is_drawn_in_proportion_to_its_size():
    sizes, rounds = np.array([1, 2, 3, 4]), 4000
    alone = [sample_cohort(0, t, 4, 1, LocalTraining(), sizes=sizes).clients[0] for t in range(rounds)]
    np.testing.assert_allclose(np.bincount(alone) / rounds, sizes / 10, atol=0.03)
    pairs = [tuple(sample_cohort(1, t, 4, 2, LocalTraining(), sizes=sizes).clients) for t in range(rounds)]
    # one after the other without replacement: P{0, 3} = 1/10 · 4/9 + 4/10 · 1/6
    assert pairs.count((0, 3)) / rounds == pytest.approx(1 / 10 * 4 / 9 + 4 / 10 * 1 / 6, abs=0.03)
    everybody = sample_cohort(0, 0, 4, 4, LocalTraining(), sizes=sizes)
    assert list(everybody.clients) == [0, 1, 2, 3]


def test_the_same_seed_and_round_give_the_same_cohort_and_others_another():
    def cohort(seed, round):
        return tuple(sample_cohort(seed, round, 1000, 10, LocalTraining()).clients)

    assert cohort(1, 5) == cohort(1, 5)
    assert len({cohort(seed, round) for seed in range(5) for round in range(20)}) == 100


def test_every_client_is_chosen_equally_often():
    # 3 of 7, 7000 rounds: each is expected 3000 times with a standard deviation of 41
    times = np.zeros(7)
    for round in range(7000):
        times[sample_cohort(0, round, 7, 3, LocalTraining()).clients] += 1
    assert np.abs(times - 3000).max() < 5 * 41.4


def test_every_pair_of_clients_is_chosen_equally_often():
    times = np.zeros((4, 4))
    for round in range(6000):
        i, j = sample_cohort(0, round, 4, 2, LocalTraining()).clients
        times[i, j] += 1
    assert np.abs(times[np.triu_indices(4, 1)] - 1000).max() < 5 * np.sqrt(6000 * 5 / 36)


def test_everybody_takes_part_when_participants_equal_clients():
    assert list(sample_cohort(3, 8, 6, 6, LocalTraining()).clients) == list(range(6))


def test_a_small_cohort_of_a_huge_population_costs_little():
    assert len(sample_cohort(0, 0, 10**12, 10, LocalTraining())) == 10


@pytest.mark.parametrize("participants", [0, -1, 8])
def test_a_cohort_of_none_or_of_more_than_there_are_is_refused(participants):
    with pytest.raises(InputError, match="Participants M should be between 1"):
        sample_cohort(0, 0, 7, participants, LocalTraining())


# --- minibatches by epochs --------------------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 30), st.integers(0, 99))
def test_epochs_use_no_example_twice_and_drop_the_last_incomplete_minibatch(n, b, steps, seed):
    positions = minibatches(rng(seed), n, LocalTraining(steps, b))
    b = min(b, n)
    assert positions.shape == (steps, b)
    assert positions.min() >= 0
    assert positions.max() < n
    per_epoch = n // b
    for start in range(0, steps, per_epoch):
        epoch = positions[start : start + per_epoch].ravel()
        assert len(set(epoch.tolist())) == len(epoch)


def test_a_whole_epoch_of_full_minibatches_sees_every_example():
    positions = minibatches(rng(), 12, LocalTraining(6, 4))
    assert sorted(positions[:3].ravel()) == list(range(12))
    assert sorted(positions[3:].ravel()) == list(range(12))


def test_every_epoch_is_shuffled_anew():
    positions = minibatches(rng(), 64, LocalTraining(16, 8))
    assert (positions[:8] != positions[8:]).any()


def test_which_examples_an_incomplete_minibatch_drops_changes_from_epoch_to_epoch():
    positions = minibatches(rng(), 10, LocalTraining(60, 4))
    dropped = {frozenset(range(10)) - frozenset(epoch.ravel().tolist()) for epoch in positions.reshape(30, 8)}
    assert all(len(each) == 2 for each in dropped)
    assert len(dropped) > 5


def test_a_client_with_fewer_examples_than_a_minibatch_uses_what_it_has():
    positions = minibatches(rng(), 3, LocalTraining(5, 32))
    assert positions.shape == (5, 3)
    assert (np.sort(positions, axis=1) == [0, 1, 2]).all()


def test_with_replacement_a_minibatch_is_whole_however_few_examples_there_are():
    positions = minibatches(rng(), 3, LocalTraining(5, 32, sampling="replacement"))
    assert positions.shape == (5, 32)
    assert set(positions.ravel()) == {0, 1, 2}


# --- minibatches with replacement -------------------------------------------------------------------------


def test_with_replacement_every_draw_is_uniform_and_independent():
    positions = minibatches(rng(), 5, LocalTraining(4000, 5, sampling="replacement"))
    share = np.bincount(positions.ravel(), minlength=5) / positions.size
    np.testing.assert_allclose(share, 0.2, atol=5 * np.sqrt(0.16 / positions.size))
    # five draws of five without a repetition have probability 5!/5⁵ = 0.0384; by epochs it would be 1
    different = np.mean([len(set(row.tolist())) == 5 for row in positions])
    assert different == pytest.approx(0.0384, abs=0.015)


@pytest.mark.parametrize("sampling", ["epochs", "replacement"])
def test_the_same_stream_gives_the_same_minibatches(sampling):
    local = LocalTraining(7, 4, sampling=sampling)
    assert (minibatches(rng(1), 30, local) == minibatches(rng(1), 30, local)).all()
    assert (minibatches(rng(1), 30, local) != minibatches(rng(2), 30, local)).any()


# --- reports ----------------------------------------------------------------------------------------------


@given(st.integers(1, 50), st.integers(1, 12), st.one_of(st.integers(1, 9), st.just("all")), st.integers(0, 99))
def test_a_report_uses_a_subset_of_budget_times_batch_examples_without_replacement(n, b, budget, seed):
    positions = report_positions(rng(seed), n, LocalTraining(batch_size=b), budget)
    assert len(positions) == (n if budget == "all" else min(budget * b, n))
    assert len(set(positions.tolist())) == len(positions)
    assert set(positions.tolist()) <= set(range(n))


def test_a_reports_subset_is_uniform():
    # one of three examples at a time: each is expected 1000 times
    chosen = [int(report_positions(rng(seed), 3, LocalTraining(batch_size=1), 1)[0]) for seed in range(3000)]
    assert np.abs(np.bincount(chosen, minlength=3) - 1000).max() < 5 * np.sqrt(3000 * 2 / 9)


# --- bad input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"steps": 0}, "steps"),
        ({"batch_size": 0}, "batch_size"),
        ({"learning_rate": 0.0}, "learning rate"),
        ({"learning_rate": -0.1}, "learning rate"),
        ({"learning_rate": float("nan")}, "learning rate"),
        ({"momentum": 1.0}, "momentum"),
        ({"momentum": -0.1}, "momentum"),
        ({"sampling": "epoch"}, "sampling"),
    ],
)
def test_local_training_that_makes_no_sense_is_refused(change, name):
    with pytest.raises(InputError, match=name):
        LocalTraining(**change)
