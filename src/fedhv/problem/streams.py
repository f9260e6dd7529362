"""Many random streams at once: the generators of `random.stream`, seeded together, bit for bit the same.

NumPy hashes the entropy of one generator in 15 µs; a cohort of twelve runs needs hundreds of them in every round. Here
NumPy's `SeedSequence` (O'Neill's `seed_seq_fe`, with a pool of four words) is computed for all rows of an array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

from fedhv.problem.random import Purpose, stream

Words = NDArray[np.uint32]

Place = tuple[int, Purpose, int, int, int]
"""Seed, purpose, round, client and part, as in `stream`."""

_POOL, _WORDS = 4, 8
"""The words of a pool, and those that PCG64 takes from it."""

_SHIFT = np.uint32(16)
_LEFT, _RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)


def streams(places: Sequence[Place]) -> list[np.random.Generator]:
    """A new generator for every place, equal to `stream(*place)`."""
    if not all(0 <= number < 2**32 for place in places for number in place):
        return [stream(*place) for place in places]  # larger numbers are several words of entropy
    states = _states(np.array(places, np.uint32).reshape(-1, 5).T)
    # NumPy's types name SeedSequence; its code takes every ISeedSequence.
    return [np.random.Generator(np.random.PCG64(_Hashed(state))) for state in states]  # type: ignore[arg-type]


class _Hashed(ISeedSequence):
    """The words of a generator's seed, which are already there."""

    def __init__(self, words: np.ndarray) -> None:
        self._words = words

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        """The words; PCG64 takes four of 64 bits."""
        return self._words


def _constants(first: int, factor: int, count: int) -> Words:
    """`count` + 1 successive multipliers of the hash."""
    words = [first]
    for _ in range(count):
        words.append(words[-1] * factor % 2**32)
    return np.array(words, np.uint32)[:, None]


_A = _constants(0x43B0D7E5, 0x931E8875, _POOL + _POOL * (_POOL - 1) + _POOL)
_B = _constants(0x8B51F9DD, 0x58F38DED, _WORDS)
_OTHERS = [[j for j in range(_POOL) if j != i] for i in range(_POOL)]


def _hashed(words: Words, constants: Words) -> Words:
    """The hash of words; row i uses the constants i and i + 1."""
    mixed: Words = (words ^ constants[:-1]) * constants[1:]
    return mixed ^ (mixed >> _SHIFT)


def _mixed(x: Words, y: Words) -> Words:
    mixed: Words = _LEFT * x - _RIGHT * y
    return mixed ^ (mixed >> _SHIFT)


def _states(entropy: Words) -> NDArray[np.uint64]:
    """The seeds of PCG64, four words of 64 bits in each row, from five words of entropy in each column."""
    pool = _hashed(entropy[:_POOL], _A[: _POOL + 1])
    used = _POOL
    for i, others in enumerate(_OTHERS):
        pool[others] = _mixed(pool[others], _hashed(pool[i], _A[used : used + _POOL]))
        used += _POOL - 1
    for word in entropy[_POOL:]:
        pool = _mixed(pool, _hashed(word, _A[used : used + _POOL + 1]))
        used += _POOL
    words = _hashed(np.concatenate([pool, pool]), _B)
    return np.ascontiguousarray(words.T).view(np.uint64)
