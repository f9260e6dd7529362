"""Draws made ahead: while a GPU works on one round, the host draws minibatches and augmentation for the next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedhv.engines.trajectories import Shape, Trajectory
from fedhv.problem.problem import Problem
from fedhv.protocol.client import draw_minibatches
from fedhv.protocol.cohort import Cohort, sample_cohort

Draws = tuple[np.ndarray, np.ndarray | None]
Key = tuple[int, int, int, int, Shape, str]


class Ahead:
    """Every draw is a function of seed, round, client and part, so those of the next round can be foreseen.

    Where the guess is wrong (another cohort, a repeated round) they are drawn when they are needed, to the same
    numbers.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._foreseen: dict[Key, Draws] = {}

    def of(self, trajectory: Trajectory, shape: Shape) -> Draws:
        """A client's minibatches and their augmentation."""
        cohort, k, part = trajectory.cohort, trajectory.client, trajectory.part
        return self._foreseen.get(_key(cohort, k, part, shape)) or self._draw(cohort, k, part, shape)

    def foresee(self, stack: Sequence[Trajectory], shape: Shape) -> None:
        """Draw for the round after this one, and drop what is over."""
        population = len(self._problem.clients)
        for seed, part in dict.fromkeys((t.cohort.seed, t.part) for t in stack):
            now = next(t.cohort for t in stack if t.cohort.seed == seed)
            self._foreseen = {
                key: draws for key, draws in self._foreseen.items() if key[0] != seed or key[1] >= now.round
            }
            sizes = self._problem.clients.sizes if now.select == "size" else None
            cohort = sample_cohort(seed, now.round + 1, population, min(len(now), population), now.local, sizes=sizes)
            for k in cohort.clients:
                key = _key(cohort, k, part, shape)
                if key not in self._foreseen:
                    self._foreseen[key] = self._draw(cohort, k, part, shape)

    def rounds(self) -> set[int]:
        """The rounds that draws are kept of."""
        return {key[1] for key in self._foreseen}

    def _draw(self, cohort: Cohort, k: int, part: int, shape: Shape) -> Draws:
        steps = shape.minibatches
        if shape.unequal:
            steps = cohort.local.steps_of(len(self._problem.clients[k])) - shape.known
        return draw_minibatches(self._problem, cohort, k, steps, part)


def _key(cohort: Cohort, k: int, part: int, shape: Shape) -> Key:
    return cohort.seed, cohort.round, k, part, shape, cohort.local.sampling
