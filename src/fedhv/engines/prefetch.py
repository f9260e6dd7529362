"""Prefetching of draws: while a GPU computes one round, the host draws minibatches and augmentation of the next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedhv.engines.trajectories import StackShape, Trajectory
from fedhv.problem.problem import Problem
from fedhv.protocol.client import draw_minibatches
from fedhv.protocol.cohort import Cohort, sample_cohort

MinibatchDraws = tuple[np.ndarray, np.ndarray | None]
Key = tuple[int, int, int, int, StackShape, str]


class Prefetcher:
    """Draws for the next round in advance. Every draw is a function of seed, round, client and part.

    If the next round has another cohort or is a repeated one, its draws are made when they are needed. The numbers are
    the same.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._prefetched: dict[Key, MinibatchDraws] = {}

    def of(self, trajectory: Trajectory, shape: StackShape) -> MinibatchDraws:
        """A client's minibatches and their augmentation."""
        cohort, k, part = trajectory.cohort, trajectory.client, trajectory.part
        return self._prefetched.get(_key(cohort, k, part, shape)) or self._draw(cohort, k, part, shape)

    def prefetch(self, stack: Sequence[Trajectory], shape: StackShape) -> None:
        """Draw for the next round, and drop the draws of past rounds."""
        population = len(self._problem.clients)
        for seed, part in dict.fromkeys((t.cohort.seed, t.part) for t in stack):
            now = next(t.cohort for t in stack if t.cohort.seed == seed)
            self._prefetched = {
                key: draws for key, draws in self._prefetched.items() if key[0] != seed or key[1] >= now.round
            }
            sizes = self._problem.clients.sizes if now.select == "size" else None
            cohort = sample_cohort(seed, now.round + 1, population, min(len(now), population), now.local, sizes=sizes)
            for k in cohort.clients:
                key = _key(cohort, k, part, shape)
                if key not in self._prefetched:
                    self._prefetched[key] = self._draw(cohort, k, part, shape)

    def rounds(self) -> set[int]:
        """The rounds whose draws are stored."""
        return {key[1] for key in self._prefetched}

    def _draw(self, cohort: Cohort, k: int, part: int, shape: StackShape) -> MinibatchDraws:
        steps = shape.minibatches
        if shape.unequal:
            steps = cohort.local.steps_of(len(self._problem.clients[k])) - shape.known
        return draw_minibatches(self._problem, cohort, k, steps, part)


def _key(cohort: Cohort, k: int, part: int, shape: StackShape) -> Key:
    return cohort.seed, cohort.round, k, part, shape, cohort.local.sampling
