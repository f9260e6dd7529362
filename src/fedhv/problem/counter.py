r"""Counter-based random bits: a hash of a 64-bit key and of an element's position.

An element with coordinates $(i_0, i_1)$ in the c-th draw of a forward pass has the bits
$\mathrm{mix}(((\mathrm{key} + c\,γ + i_0)\,γ + i_1)\,γ) \bmod 2^{64}$, and so on for more axes, where γ and mix are
SplitMix64's (Steele, Lea and Flood, 2014). They do not depend on earlier draws, on the device or on the size of the
tensor: the examples of a padded minibatch have the same draws, whichever axis is the batch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from fedhv.problem.random import Purpose

GAMMA = 0x9E3779B97F4A7C15
"""SplitMix64's increment: 2⁶⁴ divided by the golden ratio, odd."""

Words = TypeVar("Words", np.ndarray, Tensor)


def signed(word: int) -> int:
    """A 64-bit word as an int64 with the same bits; torch has no unsigned 64-bit arithmetic."""
    return (word + 2**63) % 2**64 - 2**63


_FIRST, _SECOND = signed(0xBF58476D1CE4E5B9), signed(0x94D049BB133111EB)


def mix(words: Words) -> Words:
    """SplitMix64's finaliser, a bijection of 64-bit words in which every bit of the input changes half of the output.

    The words are int64, so the sign bits of a right shift are masked; products wrap around.
    """
    words = (words ^ ((words >> 30) & (2**34 - 1))) * _FIRST
    words = (words ^ ((words >> 27) & (2**37 - 1))) * _SECOND
    mixed: Words = words ^ ((words >> 31) & (2**33 - 1))
    return mixed


DrawKey = tuple[int, int, int, int]
"""Seed, round, client and part: they fix a client's draws in a round."""


def keys(purpose: Purpose, places: Iterable[DrawKey], steps: int) -> np.ndarray:
    """The keys of forward passes, steps × clients, int64: one for every step of every client."""
    rows = [(_word(seed), round, client, part) for seed, round, client, part in places]
    seeds, rounds, clients, parts = np.array(rows, np.int64).reshape(-1, 4).T
    gamma = signed(GAMMA)
    key = mix(seeds + gamma)
    for words in (np.array([int(purpose)]), rounds, clients, parts, np.arange(steps)[:, None]):
        key = mix(key + gamma + words)
    return key


def _word(seed: int) -> int:
    """A seed in 63 bits; a smaller seed is unchanged."""
    return seed if seed < 2**63 else int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> 1)


def bits(key: int | Tensor, draw: int, shape: Sequence[int], device: torch.device) -> Tensor:
    """64 random bits, as int64, for every element of a tensor of this shape, in the given draw of a forward pass.

    The key is a number, or a scalar tensor if `vmap` maps it over clients. On a CPU, numbers are hashed by NumPy, which
    needs a fraction of the time.
    """
    if isinstance(key, Tensor):
        return mix(_counters(key + signed(draw * GAMMA), shape, device))
    first = key + draw * GAMMA
    if device.type == "cpu":
        return torch.from_numpy(_hashed([first], tuple(shape)))[0]
    return mix(_counters(torch.full((), signed(first), device=device), shape, device))


def _counters(start: Tensor, shape: Sequence[int], device: torch.device) -> Tensor:
    """The counters that are hashed, for every position of a tensor.

    Coordinates are added before the multiplication. The compiler would treat the product of a coordinate alone as an
    address and compute it with fewer bits.
    """
    for axis, size in enumerate(shape):
        numbers = torch.arange(size, device=device).reshape(-1, *[1] * (len(shape) - axis - 1))
        start = (start + numbers) * signed(GAMMA)
    return start


# --- the same bits by NumPy -----------------------------------------------------------------------------------


_SHIFTS = tuple(map(np.uint64, (30, 27, 31)))
_FACTORS = tuple(map(np.uint64, (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)))


def kept(keys: Sequence[int], draw: int, shape: Sequence[int], bound: int, scale: float) -> Tensor:
    """`scale` for every element whose bits are at least `bound`, else 0, in float32 on a CPU: one tensor for each key.

    NumPy compares and multiplies small arrays in a third of torch's time.
    """
    words = _hashed([key + draw * GAMMA for key in keys], tuple(shape))
    return torch.from_numpy((words >= bound) * np.float32(scale))


def _hashed(firsts: Sequence[int], shape: tuple[int, ...]) -> np.ndarray:
    """`mix` of the counters from each of `firsts` on. Unsigned words need no masks; operations are in place."""
    offsets = (_kept_offsets if math.prod(shape) <= KEPT else _offsets)(shape)
    starts = np.array([first * GAMMA ** len(shape) % 2**64 for first in firsts], np.uint64)
    words = offsets + starts.reshape(-1, *[1] * len(shape))
    shifted = words >> _SHIFTS[0]
    words ^= shifted
    words *= _FACTORS[0]
    words ^= np.right_shift(words, _SHIFTS[1], out=shifted)
    words *= _FACTORS[1]
    words ^= np.right_shift(words, _SHIFTS[2], out=shifted)
    return words.view(np.int64)


def _offsets(shape: tuple[int, ...]) -> np.ndarray:
    """The part of the counters that depends on the position alone: i₀γⁿ + i₁γⁿ⁻¹ + … modulo 2⁶⁴."""
    offsets = np.zeros((), np.uint64)
    for axis, size in enumerate(shape):
        numbers = np.arange(size, dtype=np.uint64).reshape(-1, *[1] * (len(shape) - axis - 1))
        offsets = offsets + numbers * np.uint64(GAMMA ** (len(shape) - axis) % 2**64)
    return offsets


KEPT = 2**17
"""Up to this many elements, the offsets of a shape are kept: the same layer asks for them in every step."""

_kept_offsets = functools.lru_cache(maxsize=32)(_offsets)
