"""What becomes of a model's BatchNorm layers, by name; read with settings, without PyTorch."""

from __future__ import annotations

from typing import Literal

from fedhv.support.errors import InputError

Norm = Literal["refuse", "frozen", "local", "average", "group"]
"""The policy for BatchNorm.

- "refuse": a model with such layers is an error.
- "frozen": they stay in evaluation mode; their statistics are those that the model is made with, and scale and shift
  train.
- "local": every client keeps its own layers, statistics, scale and shift (FedBN, Li et al. 2021); they do not travel.
- "average": statistics are part of θ; local training updates them, and the server averages them.
- "group": GroupNorm replaces them.
"""

NORMS: tuple[Norm, ...] = ("refuse", "frozen", "local", "average", "group")


def check_norm(name: str, found: object) -> None:
    """Refuse what is no policy; `name` is what the error calls the option."""
    if found not in NORMS:
        words = ", ".join(f"'{each}'" for each in NORMS[:-1])
        raise InputError(f"`{name}` should be {words} or '{NORMS[-1]}'. Found {found!r}.")
