"""When the computation of a stack is compiled: a rule on the model and on numbers of rounds, never on clocks.

A run begins without compilation, which would keep its user waiting. It is compiled between two rounds if the rounds
that are left repay the time. The rule gives the same answer on every machine and in every process, so a resumed run
computes each of its rounds as an uninterrupted one does.
"""

from __future__ import annotations

import math

EAGER = 20
"""Rounds that every run computes without compilation."""

BASE_SECONDS, SECONDS_PER_TENSOR = 10.0, 0.8
"""Compilation on an H200: 18 s with 10 parameter tensors, 34 s with 30, 122 s with 142."""

GAIN_PER_TENSOR = 3e-5
"""Seconds that compilation saves in a local step for every parameter tensor: 3.4 ms in ten steps with 10 of them."""


def rounds_to_repay(tensors: int, steps: int) -> int:
    """How many compiled rounds save the time of the compilation."""
    return math.ceil((BASE_SECONDS + SECONDS_PER_TENSOR * tensors) / (GAIN_PER_TENSOR * tensors * max(1, steps)))


def compiles_in(number: int, rounds: int, tensors: int, steps: int) -> bool:
    """Whether a round is computed by compiled code.

    Args:
        number: The round, from 0.
        rounds: T; 0 where it is not known, which never compiles.
        tensors: The number of the model's parameter tensors.
        steps: K.
    """
    return number >= EAGER and rounds - EAGER >= rounds_to_repay(tensors, steps)
