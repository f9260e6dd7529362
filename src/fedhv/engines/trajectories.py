"""Trajectories: the local steps or the single gradient of one client in a stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedhv.protocol.cohort import Cohort
from fedhv.protocol.local import Term, UpdateRule
from fedhv.protocol.script import Descend, Gradient, Member


@dataclass(frozen=True)
class Trajectory:
    """The work of one client: K steps from a model with given weights, or a single gradient.

    Attributes:
        cohort: The client's cohort, with the round, the seed and the local training.
        client: k.
        model: θ.
        weights: w.
        part: The part of the client's random streams.
        steps: The number of gradients.
        single: Whether it is a single gradient.
        first: The gradient of the first step, where it is known already.
        terms: Of the local objective beside the tasks' losses.
        state: Of the optimiser, where it continues from an earlier round.
        batch_size: Of its minibatches, where these may not be padded; 0 where they may.
    """

    cohort: Cohort
    client: int
    model: Tensor
    weights: Tensor
    part: int = 0
    steps: int = 1
    single: bool = False
    first: Tensor | None = None
    terms: tuple[Term, ...] = ()
    state: tuple[Tensor, ...] = ()
    batch_size: int = 0

    @classmethod
    def of(cls, work: Descend | Gradient, me: Member) -> Trajectory:
        """What a client's script waits for."""
        # BatchNorm's statistics are those of the whole minibatch: what pads it would count.
        b = me.local.minibatch_of(me.examples) if any(me.layout.statistics) else 0
        if isinstance(work, Gradient):
            at, w = me.own(work.at), me.scaled(work.weights)
            return cls(me.cohort, me.client, at, w, work.part, single=True, batch_size=b)
        return cls(
            me.cohort,
            me.client,
            me.own(work.start, work.part),
            me.scaled(work.weights),
            work.part,
            steps=me.local.steps_of(me.examples) - (work.first is not None),
            first=work.first,
            terms=work.terms,
            state=me.optimiser_state(work.part),
            batch_size=b,
        )

    def shape(self, largest: int) -> StackShape:
        """Trajectories of one shape can be stacked; `largest` is the number of examples of the largest client."""
        local, known = self.cohort.local, self.first is not None
        steps = 1 if self.single else local.steps_of(largest) - known
        kinds = tuple(term.kind for term in self.terms)
        unequal = local.epochs is not None and not self.single
        keeps = local.keep_state and not self.single
        b = self.batch_size or local.batch_size
        return StackShape(steps, b, local.rule, self.single, known, kinds, local.clip, unequal, keeps, bool(self.state))


@dataclass(frozen=True)
class StackShape:
    """What all trajectories of one stack must share. Learning rates may differ."""

    minibatches: int
    batch_size: int
    rule: UpdateRule
    single: bool
    known: bool
    terms: tuple[tuple[Any, ...], ...] = ()
    clip: float | None = None
    unequal: bool = False
    """Whether clients make different numbers of steps; those that have finished stay unchanged."""
    keeps: bool = False
    """Whether the optimiser's state is returned with the update."""
    resumes: bool = False
    """Whether the optimiser continues from an earlier round."""
