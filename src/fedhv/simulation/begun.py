"""A round that was begun and not yet settled: a GPU may still be computing the numbers that decide about it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any

import torch

from fedhv.methods.base import Method, State
from fedhv.problem.parameters import Layout
from fedhv.protocol.evaluation import Evaluation
from fedhv.protocol.memories import Kept
from fedhv.simulation.attempts import Population, Sizes, Tally, play_round
from fedhv.simulation.divergence import step_norm
from fedhv.simulation.events import Assess, Event
from fedhv.simulation.plan import Plan
from fedhv.support.transfers import HostCopy


@dataclass(frozen=True)
class BegunRound:
    """A round that was begun, with the numbers that decide whether it counts; a GPU may still be computing them.

    Attributes:
        t: The round, from 0.
        before: The state before it.
        state: The state after it.
        tally: Traffic, exchanges and clients.
        everyone: What clients keep after it.
        norms_of: The clients whose updates' norms are among the numbers.
        numbers: Whether a reply is doubtful, whether the model is finite, the norm of the step, the norms of updates.
        evaluation: Returns the evaluation of the model after it, where that was begun.
    """

    t: int
    before: State
    state: State
    tally: Tally
    everyone: Kept
    norms_of: tuple[int, ...]
    numbers: HostCopy
    evaluation: Callable[[], Evaluation] | None = None

    @classmethod
    def of(cls, layout: Layout, t: int, before: State, state: State, tally: Tally, everyone: Kept) -> BegunRound:
        """A round whose computations were started."""
        model, clients = state.model, tuple(k for each in tally.unchecked for k in each.clients)
        doubts = [each.doubtful.to(model.device) for each in tally.unchecked]
        doubtful = torch.stack(doubts).any() if doubts else torch.zeros((), dtype=torch.bool, device=model.device)
        scalars = [doubtful, model.isfinite().all(), step_norm(layout, before.model, model)]
        norms = [each.norms.to(model.device) for each in tally.unchecked if each.norms is not None]
        numbers = torch.cat([torch.stack([each.double() for each in scalars]), *norms])
        return cls(t, before, state, tally, everyone, clients, HostCopy(numbers))

    @property
    def doubtful(self) -> bool:
        """Whether replies that were trusted have to be checked one by one."""
        return bool(self.numbers.read()[0])

    @property
    def finite(self) -> bool:
        """Whether the model after it is finite."""
        return bool(self.numbers.read()[1])

    @property
    def step(self) -> float:
        """The norm of its step, as the history has it."""
        return float(f"{float(self.numbers.read()[2]):.6g}")

    @property
    def norms(self) -> dict[int, float]:
        """The norms of the updates that were taken, by client."""
        late = self.numbers.read()[3:].tolist()
        norms = self.tally.norms | dict(zip(self.norms_of, late, strict=True))
        return {k: norms[k] for k in self.tally.taken if k in norms}


def begin_round(
    layout: Layout,
    population: Population,
    method: Method,
    plan: Plan,
    before: State,
    t: int,
    everyone: Kept,
    sizes: Sizes | None,
    trusting: bool,
) -> Generator[Event, Any, BegunRound]:
    """Round t up to the point where its numbers have to be read."""
    tally = Tally()
    state = yield from play_round(layout, population, method, plan, before, t, tally, everyone, sizes, trusting)
    after = {**everyone, **tally.kept} if tally.kept else everyone
    begun = BegunRound.of(layout, t, before, state, tally, after)
    if trusting and plan.tests and plan.evaluates(t + 1):
        later: Callable[[], Evaluation] = yield Assess(state.model, plan.evaluation_reference, later=True)
        return replace(begun, evaluation=later)
    return begun
