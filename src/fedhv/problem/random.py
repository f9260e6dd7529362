"""Every random draw is a function of (seed, purpose, round, client).

No generator is kept between draws, so no random state is saved. A resumed run equals an uninterrupted one, and results
do not depend on the engine, the number of workers or the order of replies.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """The purpose of a draw. The numbers are part of the definition of a run: append, never renumber."""

    PARTITION = 1
    MODEL = 2
    COHORT = 3
    MINIBATCHES = 4
    REPORT = 5
    AUGMENTATION = 6
    DROPOUT = 7
    COMPRESSION = 8
    BENCHMARK = 9
    FAULTS = 10
    PRIVACY = 11
    MISSING = 12
    VALIDATION = 13
    METHOD = 16


def stream(seed: int, purpose: Purpose, round: int = 0, client: int = 0, part: int = 0) -> np.random.Generator:
    """A new generator for one purpose of one client in one round; `part` distinguishes tasks or stages."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, purpose, round, client, part))))


def torch_seed(seed: int, purpose: Purpose, round: int = 0, client: int = 0, part: int = 0) -> int:
    """A seed for `torch.manual_seed`, for draws inside torch (initialisation)."""
    return int(stream(seed, purpose, round, client, part).integers(2**63))
