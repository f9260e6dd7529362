"""One round: the method's exchanges with a cohort, repeated with a new cohort while there are too few replies."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedhv.methods.base import Conversation, Method, State, check_conversation, check_state
from fedhv.problem.parameters import Layout
from fedhv.protocol.cohort import Cohort, sample_cohort
from fedhv.protocol.evaluation import Evaluation
from fedhv.protocol.exchange import Call
from fedhv.protocol.intake import Intake
from fedhv.protocol.memories import Kept, Memories, RoundMemories
from fedhv.protocol.request import Refusal, Replies, Unchecked, check_request
from fedhv.protocol.screening import TooFewReplies
from fedhv.protocol.traffic import Traffic, traffic
from fedhv.simulation.divergence import worst_task
from fedhv.simulation.events import Assess, Event
from fedhv.simulation.plan import Plan
from fedhv.support.errors import diverged
from fedhv.support.wording import counted

Population = int | Callable[[], Sequence[int]]
"""The number of clients, or a function that returns the available ones if clients come and go."""

Sizes = Callable[[Sequence[int]], np.ndarray]
"""How many examples some clients hold."""


@dataclass
class Tally:
    """Traffic, exchanges and refused clients of a round over all its attempts, and what clients keep after it."""

    traffic: Traffic = field(default_factory=Traffic)
    exchanges: int = 0
    refused: list[Refusal] = field(default_factory=list)
    attempts: int = 0
    kept: Kept = field(default_factory=dict)
    statistics: Tensor | None = None
    """The mean change of running statistics in the attempt."""
    present: int = 0
    asked: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    norms: dict[int, float] = field(default_factory=dict)
    unchecked: list[Unchecked] = field(default_factory=list)
    """The results of screening of replies that were combined before these were read."""

    def cohort(self, by_client: Mapping[int, float]) -> dict[str, Any]:
        """Who took part: how many clients were there, who was asked, whose answers count, the norms of their updates.

        A client that was asked in several attempts is in `asked` several times.
        """
        norms = [float(f"{by_client[k]:.6g}") for k in self.taken if k in by_client]
        return {"present": self.present, "asked": self.asked, "taken": self.taken} | ({"norms": norms} if norms else {})


def play_round(
    layout: Layout,
    population: Population,
    method: Method,
    plan: Plan,
    state: State,
    t: int,
    tally: Tally,
    everyone: Kept,
    sizes: Sizes | None,
    trusting: bool,
) -> Generator[Event, Any, State]:
    """Round t, repeated with new cohorts until there are enough replies; returns the state after it."""
    while True:
        intake = Intake(plan.screening, plan.faults, tally.attempts, plan.average, plan.lists)
        attempt, tally.attempts, tally.statistics = tally.attempts, tally.attempts + 1, None
        tally.unchecked.clear()
        try:
            there = population if isinstance(population, int) else population()
            tally.present = there if isinstance(there, int) else len(there)
            held = None
            if plan.select == "size":
                assert sizes is not None, "cohorts by size need the clients' sizes"
                held = sizes(range(there) if isinstance(there, int) else there)
            cohort = sample_cohort(plan.seed, t, there, plan.participants, plan.local_in(t), attempt, held)
            tally.asked += cohort.clients
            conversation = method.conversation(state)
            check_conversation(method, conversation)
            memories = RoundMemories(everyone)
            after = yield from _converse(conversation, method.label, cohort, intake, layout, tally, memories, trusting)
            check_state(method, after, state)
            tally.kept = memories.kept()
            return _with_statistics(layout, state, plan.server.applied(state, after), tally.statistics)
        except TooFewReplies as few:
            if tally.attempts < plan.screening.attempts:
                continue
            if few.lost:
                what = f"In round {t + 1} the updates of all clients that answered are"
                raise diverged(what, (yield from where_worst(state, plan))) from None
            tries = counted(tally.attempts, "attempt")
            raise TooFewReplies(f"Round {t + 1}, after {tries} (`server.attempts`): {few}") from None


def _with_statistics(layout: Layout, before: State, after: State, change: Tensor | None) -> State:
    """Running statistics are the mean of the clients'; a method's step does not apply to them.

    They are no parameters: a server's learning rate would move a variance past the clients' values, below zero even.
    """
    if change is None:
        return after
    entries = layout.statistic_entries.to(after.model.device)
    return replace(after, model=torch.where(entries, before.model + change, after.model))


def _converse(
    conversation: Conversation,
    method: str,
    cohort: Cohort,
    intake: Intake,
    layout: Layout,
    tally: Tally,
    memories: Memories,
    trusting: bool,
) -> Generator[Event, Any, State]:
    """One attempt: the exchanges of the method with the clients of the cohort that have not been refused."""
    replies: Replies | None = None
    while True:
        try:
            request = check_request(conversation.send(replies), method)
        except StopIteration as end:
            after: State = end.value
            tally.taken = list(cohort.clients)
            return after
        asked, (cohort, refused) = len(cohort), intake.present(request, cohort)
        if len(cohort):
            answered: Replies = yield Call(request, cohort, intake, memories, trusting)
            replies, cohort = answered, answered.cohort
            tally.unchecked += [] if answered.unchecked is None else [answered.unchecked]
            tally.statistics = tally.statistics if answered.statistics is None else answered.statistics
            tally.norms |= answered.norms
            refused = [*refused, *answered.refused]
        asked -= sum(not refusal.asked for refusal in refused)
        tally.traffic += traffic(request, layout, asked, len(cohort) + sum(refusal.sent for refusal in refused))
        tally.exchanges += 1
        tally.refused += refused
        intake.screening.check_enough(len(cohort), refused)


def where_worst(state: State, plan: Plan) -> Generator[Event, Any, str]:
    """The task with the largest loss at the last good model, where a divergence most likely began."""
    if not plan.tests:
        return ""
    evaluation: Evaluation = yield Assess(state.model, plan.evaluation_reference)
    worst = worst_task(evaluation)
    return f"At the last good model task '{worst.name}' has the largest test loss, {worst.loss:.4g}."
