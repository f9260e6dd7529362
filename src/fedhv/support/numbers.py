"""Checks of numbers in files and arguments."""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex, TypeGuard

from fedhv.support.errors import InputError

LARGEST_SEED = 2**63 - 1
"""The largest whole number that TOML has."""


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is an integer or a float. Booleans are not numbers here."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: object) -> TypeGuard[SupportsIndex]:
    """Whether a value is an integer of Python or NumPy."""
    return isinstance(value, SupportsIndex) and not isinstance(value, bool)


def short(value: float) -> str:
    """A number with six digits if these are all it has, else with all of them: different numbers differ."""
    text = f"{value:g}"
    return text if float(text) == value else repr(value)


def as_seed(value: Any) -> int:
    """A run's seed: an integer of Python or NumPy that is neither negative nor too large."""
    seed = operator.index(value) if is_whole(value) else -1
    if not 0 <= seed <= LARGEST_SEED:
        raise InputError(f"A seed should be a whole number from 0 to 2^63 - 1. Found {value!r}.")
    return seed


def check_at_least(least: int, owner: Any, section: str, *names: str) -> None:
    """Raise an error for values of a setting's table that are too small."""
    for name in names:
        if getattr(owner, name) < least:
            raise InputError(f"`{section}.{name}` should be at least {least}. Found {getattr(owner, name)}.")
