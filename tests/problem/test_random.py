"""Every random draw is a function of (seed, purpose, round, client, part), and of nothing else."""

import itertools

import numpy as np
import pytest

from fedhv.problem.random import Purpose, stream, torch_seed

COORDINATES = list(itertools.product([0, 1, 42], list(Purpose), [0, 1, 7], [0, 1, 7], [0, 1, 1_000_000]))


def test_different_coordinates_give_different_draws():
    draws = {stream(*place).integers(2**63) for place in COORDINATES}
    assert len(draws) == len(COORDINATES)


def test_the_same_coordinates_give_the_same_draws_whatever_was_drawn_before():
    first = stream(3, Purpose.REPORT, 5, 2).standard_normal(100)
    np.random.default_rng().standard_normal(10)
    stream(3, Purpose.REPORT, 5, 3).standard_normal(17)
    assert (stream(3, Purpose.REPORT, 5, 2).standard_normal(100) == first).all()


def test_seeds_for_torch_are_distinct_and_reproducible():
    seeds = [torch_seed(*place) for place in COORDINATES]
    assert len(set(seeds)) == len(seeds)
    assert seeds == [torch_seed(*place) for place in COORDINATES]
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_large_seeds_and_a_million_clients_have_streams():
    assert stream(2**64, Purpose.COHORT, 10**6, 10**6).integers(2**63) >= 0


@pytest.mark.parametrize(
    ("purpose", "number"),
    [("PARTITION", 1), ("MODEL", 2), ("COHORT", 3), ("MINIBATCHES", 4), ("REPORT", 5), ("AUGMENTATION", 6),
     ("DROPOUT", 7), ("COMPRESSION", 8), ("BENCHMARK", 9)],
)  # fmt: skip
def test_the_numbers_of_purposes_never_change(purpose, number):
    assert Purpose[purpose] == number


def test_the_streams_themselves_never_change():
    # PCG64's raw output is guaranteed by NumPy: another value here means that old runs cannot be resumed
    assert stream(0, Purpose.COHORT, 1).bit_generator.random_raw() == GOLDEN_RAW


GOLDEN_RAW = 4814510608012271732
