"""What counts as a number in somebody's file or arguments."""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex, TypeGuard

from fedhv.support.errors import InputError


def is_number(value: object) -> TypeGuard[float]:
    """Whole or not; true and false are none, although Python counts with them."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: object) -> TypeGuard[SupportsIndex]:
    """A whole number, NumPy's too."""
    return isinstance(value, SupportsIndex) and not isinstance(value, bool)


def as_seed(value: Any) -> int:
    """A run's seed: a whole number from 0, NumPy's too."""
    seed = operator.index(value) if is_whole(value) else -1
    if seed < 0:
        raise InputError(f"A seed should be a whole number from 0. Found {value!r}.")
    return seed
