"""Every random draw is a function of (seed, purpose, round, client).

No generator lives longer than the draw it serves, so nothing random is ever saved: resuming at round t is
starting at round t, and results do not depend on the engine, the number of workers or the order of replies.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a draw is for. The numbers are part of the definition of a run: append, never renumber."""

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
    METHOD = 16


def stream(seed: int, purpose: Purpose, round: int = 0, client: int = 0, part: int = 0) -> np.random.Generator:
    """A fresh generator for one purpose of one client in one round (`part` tells apart tasks or stages)."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, purpose, round, client, part))))


def torch_seed(seed: int, purpose: Purpose, round: int = 0, client: int = 0, part: int = 0) -> int:
    """A seed for `torch.manual_seed`, where the draw happens inside torch (initialisation)."""
    return int(stream(seed, purpose, round, client, part).integers(2**63))
