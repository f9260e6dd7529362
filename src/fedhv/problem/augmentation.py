"""Random changes of training minibatches."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from torch import Tensor


class Augmentation(Protocol):
    """A random change of training minibatches, split into its draws and their effect.

    The draws are made in NumPy from the client's random stream. The effect is one batched operation on the device. So
    every engine uses the same augmented images.
    """

    def draw(self, rng: np.random.Generator, steps: int, batch: int) -> np.ndarray:
        """float32 draws of shape (steps, batch, …)."""

    def apply(self, inputs: Tensor, draws: Tensor) -> Tensor:
        """The augmented inputs; the first axes of both arguments agree.

        An example's result depends on its own draws only: engines apply it to several minibatches together.
        """
