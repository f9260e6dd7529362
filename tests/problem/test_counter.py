"""Bits from a key and a place: SplitMix64's published numbers, an independent computation, and their statistics."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from fedhv.problem.counter import GAMMA, bits, keys, mix, signed
from fedhv.problem.random import Purpose

CPU = torch.device("cpu")
PLACES = [*itertools.product((0, 1, 2**64, 2**64 + 1), (0, 1, 7), (0, 1, 10**6), (0, 1, 10**6))]


def by_hand(word: int) -> int:
    """SplitMix64's finaliser in whole numbers of any size."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
    return word ^ (word >> 31)


def test_the_hash_is_splitmix64():
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431,
                 16408922859458223821]  # fmt: skip
    words = np.array([signed(1234567 + i * GAMMA) for i in range(1, 6)])
    assert mix(words).view(np.uint64).tolist() == published


@pytest.mark.parametrize("key", [0, 1, -1, 2**63 - 1, -(2**63), 123456789])
def test_bits_are_those_of_whole_numbers(key):
    found = bits(key, 3, (2, 3, 4), CPU)
    for i, j, k in itertools.product(range(2), range(3), range(4)):
        word = (((key + 3 * GAMMA + i) * GAMMA + j) * GAMMA + k) * GAMMA % 2**64
        assert int(found[i, j, k]) == signed(by_hand(word))
    assert int(bits(key, 1, (), CPU)) == signed(by_hand((key + GAMMA) % 2**64))


@pytest.mark.parametrize("shape", [(), (7,), (5, 17), (5, 4, 16), (2, 3, 4, 5)])
def test_a_number_a_tensor_and_a_stack_of_keys_give_the_same_bits(shape):
    each = [5, -9, 2**62]
    expected = torch.stack([bits(key, 2, shape, CPU) for key in each])
    assert torch.equal(torch.stack([bits(torch.tensor(key), 2, shape, CPU) for key in each]), expected)
    assert torch.equal(torch.func.vmap(lambda key: bits(key, 2, shape, CPU))(torch.tensor(each)), expected)


def test_bits_do_not_depend_on_the_size_of_the_tensor():
    whole = bits(11, 1, (6, 7, 8), CPU)
    assert torch.equal(bits(11, 1, (4, 5, 3), CPU), whole[:4, :5, :3])


def test_no_two_elements_draws_or_keys_share_their_bits():
    some = keys(Purpose.DROPOUT, [(0, 1, k, 0) for k in range(3)], 1)[0].tolist()
    drawn = [bits(key, draw, (40, 50, 10), CPU).flatten() for key in some for draw in (1, 2, 3)]
    assert len(torch.cat(drawn).unique()) == 9 * 20_000


def test_every_bit_is_fair_and_independent_of_its_neighbours():
    """Means and correlations of all 64 bits over 40,000 elements, within five standard errors."""
    shape = (200, 200)
    (key, client), (step, _) = keys(Purpose.DROPOUT, [(0, 1, 5, 0), (0, 1, 6, 0)], 2).tolist()
    words = bits(key, 1, shape, CPU).numpy()[..., None] >> np.arange(64) & 1
    signs = 2.0 * words - 1
    error = 5 / np.sqrt(signs[..., 0].size)
    assert abs(signs.mean(axis=(0, 1))).max() < error
    others = [bits(key, 2, shape, CPU), bits(client, 1, shape, CPU), bits(step, 1, shape, CPU)]
    beside = [signs[1:] * signs[:-1], signs[:, 1:] * signs[:, :-1], signs[1:, 1:] * signs[:-1, :-1]]
    beside += [signs * (2.0 * (other.numpy()[..., None] >> np.arange(64) & 1) - 1) for other in others]
    for product in beside:
        assert abs(product.mean(axis=(0, 1))).max() < error * 1.01
    pairs = np.einsum("ija,ijb->ab", signs, signs) / signs[..., 0].size
    assert abs(pairs - np.eye(64)).max() < error


def test_keys_of_different_places_and_steps_differ():
    made = keys(Purpose.DROPOUT, PLACES, 5)
    assert made.shape == (5, len(PLACES))
    assert made.dtype == np.int64
    assert len(np.unique(made)) == made.size
    assert not np.isin(keys(Purpose.AUGMENTATION, PLACES, 5), made).any()


def test_keys_depend_neither_on_the_other_clients_nor_on_the_number_of_steps():
    together = keys(Purpose.DROPOUT, PLACES, 5)
    for j, place in enumerate(PLACES):
        assert (keys(Purpose.DROPOUT, [place], 3)[:, 0] == together[:3, j]).all()


def test_a_key_is_the_hash_of_its_words():
    key = by_hand((4 + GAMMA) % 2**64)
    for word in (Purpose.DROPOUT, 9, 2, 1_000_001, 6):
        key = by_hand((key + GAMMA + word) % 2**64)
    assert int(keys(Purpose.DROPOUT, [(4, 9, 2, 1_000_001)], 7)[6, 0]) == signed(key)
