"""Prefetching of draws: while a GPU computes one round, the host draws minibatches and augmentation of the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedhv.engines.trajectories import StackShape, Trajectory
from fedhv.problem.counter import DrawKey
from fedhv.problem.problem import Problem
from fedhv.problem.streams import streams
from fedhv.protocol.client import minibatch_purposes, minibatches_from
from fedhv.protocol.cohort import Cohort, sample_cohort

MinibatchDraws = tuple[np.ndarray, np.ndarray | None]


@dataclass(frozen=True)
class Place:
    """A client's place in a stack."""

    cohort: Cohort
    client: int
    part: int

    @property
    def key(self) -> DrawKey:
        """Seed, round, client and part."""
        return self.cohort.place(self.client, self.part)

    @property
    def draws(self) -> tuple[DrawKey, str]:
        """What its draws depend on besides the shape of the stack; not the learning rate, which a schedule changes."""
        return self.key, self.cohort.local.sampling


class Prefetcher:
    """Draws for the next round in advance. Every draw is a function of seed, round, client and part.

    If the next round has another cohort or is a repeated one, its draws are made when they are needed. The numbers are
    the same.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._prefetched: dict[tuple[StackShape, str], dict[DrawKey, MinibatchDraws]] = {}

    def of(self, place: Place, shape: StackShape) -> MinibatchDraws:
        """A client's minibatches and their augmentation."""
        known = self._prefetched.get((shape, place.cohort.local.sampling), {})
        return known.get(place.key) or self._draw([place], shape)[0]

    def prefetch(self, stack: Sequence[Trajectory], shape: StackShape) -> list[Place] | None:
        """Draw for the next round, and drop the draws of past rounds.

        Returns the places of the next stack if it is like this one; None if that cannot be known.
        """
        population = len(self._problem.clients)
        now = {t.cohort.seed: t.cohort for t in stack}
        following = {seed: self._following(cohort, population) for seed, cohort in now.items()}
        known = self._prefetched.setdefault((shape, stack[0].cohort.local.sampling), {})
        for key in [key for key in known if key[0] in now and key[1] < now[key[0]].round]:
            del known[key]
        runs = dict.fromkeys((t.cohort.seed, t.part) for t in stack)
        wanted = [Place(following[seed], k, part) for seed, part in runs for k in following[seed].clients]
        new = [place for place in wanted if place.key not in known]
        known |= zip((place.key for place in new), self._draw(new, shape), strict=True)
        if shape.unequal or any(t.batch_size for t in stack):  # who is stacked with whom depends on the clients
            return None
        places = []
        for t in stack:
            cohort, clients = following[t.cohort.seed], now[t.cohort.seed].clients
            if t.client not in clients or len(cohort) != len(clients):
                return None
            places.append(Place(cohort, cohort.clients[clients.index(t.client)], t.part))
        return places

    def rounds(self) -> set[int]:
        """The rounds whose draws are stored."""
        return {key[1] for known in self._prefetched.values() for key in known}

    def _following(self, now: Cohort, population: int) -> Cohort:
        sizes = self._problem.clients.sizes if now.select == "size" else None
        return sample_cohort(now.seed, now.round + 1, population, min(len(now), population), now.local, sizes=sizes)

    def _draw(self, places: Sequence[Place], shape: StackShape) -> list[MinibatchDraws]:
        """The draws of several clients; their random streams are seeded together."""
        problem = self._problem
        purposes = minibatch_purposes(problem)
        rngs = iter(streams([(p.cohort.seed, to, p.cohort.round, p.client, p.part) for p in places for to in purposes]))
        draws = []
        for place in places:
            steps = shape.minibatches
            if shape.unequal:
                steps = place.cohort.local.steps_of(len(problem.clients[place.client])) - shape.known
            own = [next(rngs) for _ in purposes]
            draws.append(minibatches_from(problem, place.cohort, place.client, steps, own))
        return draws
