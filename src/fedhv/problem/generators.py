"""The global random generators of Python and NumPy, from which a user's code may draw.

Draws of a model are functions of a key where torch makes them (see `dropout`). Others are functions of the seed because
the generators are seeded before, and have their state back afterwards.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch


def watch_generators() -> Callable[[], bool]:
    """A function that tells whether anything was drawn since from the generators of torch, Python and NumPy."""
    on_host, others = torch.get_rng_state(), _watch_others()
    return lambda: others() or not torch.equal(torch.get_rng_state(), on_host)


@contextmanager
def seeded(seed: int) -> Iterator[Callable[[], bool]]:
    """In this context the generators of Python and NumPy begin with a seed; afterwards they are as they were.

    Yields a function that tells whether anything was drawn from them in this context.
    """
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        yield _watch_others()
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


def _watch_others() -> Callable[[], bool]:
    python, numpy = random.getstate(), _of_numpy()
    return lambda: random.getstate() != python or _of_numpy() != numpy


def _of_numpy() -> tuple[object, ...]:
    kind, words, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    return kind, np.asarray(words).tobytes(), *rest
