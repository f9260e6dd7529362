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
        single: Whether it is a single gradient.
        first: The gradient of the first step, where it is known already.
        terms: Of the local objective beside the tasks' losses.
    """

    cohort: Cohort
    client: int
    model: Tensor
    weights: Tensor
    part: int = 0
    single: bool = False
    first: Tensor | None = None
    terms: tuple[Term, ...] = ()

    @classmethod
    def of(cls, work: Descend | Gradient, me: Member) -> Trajectory:
        """What a client's script waits for."""
        if isinstance(work, Gradient):
            return cls(me.cohort, me.client, work.at, work.weights, work.part, single=True)
        return cls(me.cohort, me.client, work.start, work.weights, work.part, first=work.first, terms=work.terms)

    @property
    def shape(self) -> Shape:
        """Trajectories of one shape can be stacked."""
        local, known = self.cohort.local, self.first is not None
        steps = 1 if self.single else local.steps - known
        kinds = tuple(term.kind for term in self.terms)
        return Shape(steps, local.batch_size, local.rule, self.single, known, kinds)


@dataclass(frozen=True)
class Shape:
    """All that trajectories in one stack must have in common; learning rates may differ."""

    minibatches: int
    batch_size: int
    rule: UpdateRule
    single: bool
    known: bool
    terms: tuple[tuple[Any, ...], ...] = ()
