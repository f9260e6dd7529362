"""What counts as a number in somebody's file or arguments."""

from __future__ import annotations

from typing import TypeGuard


def is_number(value: object) -> TypeGuard[float]:
    """Whole or not; true and false are none, although Python counts with them."""
    return isinstance(value, int | float) and not isinstance(value, bool)
