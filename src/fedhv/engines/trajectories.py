"""What the clients of a stack compute, one by one: steps from a model under some weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedhv.protocol.cohort import Cohort
from fedhv.protocol.local import Term, UpdateRule
from fedhv.protocol.script import Descend, Gradient, Member


@dataclass(frozen=True)
class Trajectory:
    """What one client is to compute: K steps from a model under some weights, or a single gradient there.

    Attributes:
        cohort: Whose member the client is; fixes the round, the seed and the hyper-parameters.
        client: k.
        model: θ.
        weights: w.
        part: Which part of the client's random stream.
        steps: How many gradients it computes.
        single: Whether it is a single gradient.
        first: The gradient of the first step, where it is known already.
        terms: Of the local objective beside the tasks' losses.
        state: Of the optimiser, where it goes on from an earlier round.
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

    @classmethod
    def of(cls, work: Descend | Gradient, me: Member) -> Trajectory:
        """What a client's script waits for."""
        if isinstance(work, Gradient):
            return cls(me.cohort, me.client, work.at, me.scaled(work.weights), work.part, single=True)
        return cls(
            me.cohort,
            me.client,
            work.start,
            me.scaled(work.weights),
            work.part,
            steps=me.local.steps_of(me.examples) - (work.first is not None),
            first=work.first,
            terms=work.terms,
            state=me.optimiser_state(work.part),
        )

    def shape(self, largest: int) -> StackShape:
        """Trajectories of one shape can be stacked; `largest` is the number of examples of the largest client."""
        local, known = self.cohort.local, self.first is not None
        steps = 1 if self.single else local.steps_of(largest) - known
        kinds = tuple(term.kind for term in self.terms)
        unequal = local.epochs is not None and not self.single
        keeps = local.keep_state and not self.single
        return StackShape(
            steps, local.batch_size, local.rule, self.single, known, kinds, local.clip, unequal, keeps, bool(self.state)
        )


@dataclass(frozen=True)
class StackShape:
    """All that trajectories in one stack must have in common; learning rates may differ."""

    minibatches: int
    batch_size: int
    rule: UpdateRule
    single: bool
    known: bool
    terms: tuple[tuple[Any, ...], ...] = ()
    clip: float | None = None
    unequal: bool = False
    """Whether clients make different numbers of steps; those that are through wait."""
    keeps: bool = False
    """Whether the optimiser's state is wanted beside the update."""
    resumes: bool = False
    """Whether the optimiser goes on from an earlier round."""
