"""What counts as a number in somebody's file or arguments."""

from __future__ import annotations

import operator
from typing import Any, TypeGuard

from fedhv.errors import InputError


def is_number(value: object) -> TypeGuard[float]:
    """Whole or not; true and false are none, although Python counts with them."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def as_seed(value: Any) -> int:
    """A run's seed: a whole number from 0, NumPy's too."""
    try:
        seed = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        seed = -1
    if seed < 0:
        raise InputError(f"A seed should be a whole number from 0. Found {value!r}.")
    return seed
