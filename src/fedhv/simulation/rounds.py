"""The round loop: sample a cohort, run the method's round, evaluate, count the traffic."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedhv.engines.base import Engine
from fedhv.engines.portions import gpu_memory
from fedhv.methods.base import Conversation, Method, State, check_conversation, check_state
from fedhv.methods.parts.server import ServerOptimiser
from fedhv.problem.parameters import Layout, initial_model
from fedhv.problem.random import Purpose, torch_seed
from fedhv.protocol.cohort import Cohort, Select, sample_cohort
from fedhv.protocol.evaluation import Evaluation
from fedhv.protocol.exchange import Call, Kept, Memories, RoundMemories
from fedhv.protocol.faults import NO_FAULTS, Faults
from fedhv.protocol.intake import Intake
from fedhv.protocol.local import LocalTraining, Schedule
from fedhv.protocol.request import Refusal, Replies, Unchecked, check_request
from fedhv.protocol.screening import Screening, TooFewReplies
from fedhv.protocol.shares import Average
from fedhv.protocol.traffic import Traffic, traffic
from fedhv.simulation.divergence import check_explosion, check_step, step_norm, suspect, worst_task
from fedhv.simulation.record import Round, noted
from fedhv.simulation.selection import check_judged
from fedhv.simulation.validation import MetricName, validation_round
from fedhv.support.errors import FedHVError, InputError, diverged
from fedhv.support.transfers import HostCopy

LISTED = 64
"""Cohorts of at most this size are listed in histories unless the setting says otherwise: a kilobyte a round."""


@dataclass(frozen=True)
class Plan:
    """The configuration of a run, apart from problem and method.

    Attributes:
        rounds: T.
        participants: M.
        local: How clients train.
        schedule: How their learning rate changes over the rounds.
        server: How the server moves along the method's step.
        average: How much each client counts in means of updates and reports.
        select: How cohorts are drawn.
        evaluate_every: The number of rounds between evaluations; 0 evaluates the last round only, which always is.
        evaluation_reference: r_eval, the common reference of the evaluation hypervolume.
        seed: The seed of all random draws of the run.
        screening: The server's bounds on replies and the number of replies that it needs.
        faults: Simulated client failures.
        explosion: The run has diverged if a test loss exceeds this multiple of the first evaluation's largest.
        cohort: Whether the history has who was asked, whose answers were taken, and the norms of their updates; None
            if it has them for cohorts of at most `LISTED` clients.
        tests: Whether models are evaluated on test examples after rounds.
        validates: The tasks' names, where clients evaluate models on examples that they hold out; else empty. Their
            evaluation then takes the place of the test's, which is computed once, for the model that is kept.
        metrics: The tasks' main metrics, where clients are to compute them on what they hold out.
        judged: The tasks, by number, that count for divergence and for the choice of a model; None for all.
        selects: Whether the evaluations choose the model or the last round, so that every task has to be judged.
        alone: Whether one client trains alone. Its few examples may not define a metric; accuracy judges the task then.
    """

    rounds: int
    participants: int
    local: LocalTraining
    schedule: Schedule = field(default_factory=Schedule, kw_only=True)
    server: ServerOptimiser = field(default_factory=ServerOptimiser, kw_only=True)
    average: Average = field(default="clients", kw_only=True)
    select: Select = field(default="uniform", kw_only=True)
    evaluate_every: int = 1
    evaluation_reference: float = 3.0
    seed: int = 0
    screening: Screening = field(default_factory=Screening)
    faults: Faults = NO_FAULTS
    explosion: float = 1000.0
    cohort: bool | None = field(default=None, kw_only=True)
    tests: bool = field(default=True, kw_only=True)
    validates: tuple[str, ...] = field(default=(), kw_only=True)
    metrics: tuple[MetricName | None, ...] = field(default=(), kw_only=True)
    judged: tuple[int, ...] | None = field(default=None, kw_only=True)
    selects: bool = field(default=False, kw_only=True)
    alone: bool = field(default=False, kw_only=True)

    def local_in(self, t: int) -> LocalTraining:
        """The local training in round t, counted from 0."""
        return replace(self.local, learning_rate=self.local.learning_rate * self.schedule.at(t, self.rounds))

    @property
    def lists(self) -> bool:
        """Whether the history names the clients of every round."""
        return self.participants <= LISTED if self.cohort is None else self.cohort

    def evaluates(self, number: int) -> bool:
        """Whether the model is evaluated after this round."""
        return number == self.rounds or (self.evaluate_every > 0 and number % self.evaluate_every == 0)


@dataclass(frozen=True, kw_only=True)
class FinishedRound(Round):
    """A round that has just ended: its record for the history, and the state after it."""

    state: State
    kept: Kept = field(default_factory=dict)
    """The tensors that the round's clients keep until the run ends."""

    @property
    def record(self) -> Round:
        """The record without the state, which would need too much memory for every round."""
        return Round(**{each.name: getattr(self, each.name) for each in fields(Round)})


@dataclass(frozen=True)
class Assess:
    """A run's request for the evaluation of a model; `later` asks for a function that returns it."""

    model: Tensor
    reference: float
    later: bool = False


Event = Call | Assess | FinishedRound | FedHVError
"""What a run yields: a request, an evaluation to compute, a finished round, or the error that ended it."""


def initial_state(engine: Engine, method: Method, seed: int) -> State:
    """Round 0: the model's own initialisation and uniform weights."""
    theta = initial_model(engine.problem.model, torch_seed(seed, Purpose.MODEL), engine.problem.norm)
    return method.start(theta.to(engine.device), len(engine.problem.tasks))


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
    """What the screening found in replies that were combined before anybody looked at it."""

    def cohort(self, by_client: Mapping[int, float]) -> dict[str, Any]:
        """Who took part: how many clients were there, who was asked, whose answers count, the norms of their updates.

        A client that was asked in several attempts is in `asked` several times.
        """
        norms = [float(f"{by_client[k]:.6g}") for k in self.taken if k in by_client]
        return {"present": self.present, "asked": self.asked, "taken": self.taken} | ({"norms": norms} if norms else {})


Population = int | Callable[[], Sequence[int]]
"""The number of clients, or a function that returns the available ones if clients come and go."""

Sizes = Callable[[Sequence[int]], np.ndarray]
"""How many examples some clients hold."""


def rounds(
    layout: Layout,
    population: Population,
    method: Method,
    plan: Plan,
    state: State,
    start: int = 0,
    baseline: float | None = None,
    kept: Kept | None = None,
    sizes: Sizes | None = None,
    until: int | None = None,
    largest: float = 0.0,
    ahead: bool = False,
) -> Generator[Event, Any, None]:
    """The rounds `start + 1` … T of one run, or those up to `until`, as a generator of events.

    Every draw is a function of the seed and the round, so starting from the state after round `start` gives what
    an uninterrupted run gives. What it hands out (`Call`, `Assess`) may be answered together with other runs'.
    `baseline` is the largest test loss of the first evaluation, where it lies before `start`. `kept` is what clients
    keep, where a run goes on from a checkpoint. `sizes` is asked where cohorts are drawn by size. `largest` is the norm
    of the longest step up to `start`.

    With `ahead` the next round begins before the numbers of the last one are read, so that a GPU always has work.
    Replies are then trusted until these numbers are there. If they are doubtful, or something fails, the round is
    computed again without trust, and what was begun after it is dropped.
    """
    everyone: Kept = dict(kept or {})
    begun: list[BegunRound] = []
    t, end, careful = start, plan.rounds if until is None else min(until, plan.rounds), -1
    while begun or t < end:
        while t < end and (not begun or (ahead and t != careful and len(begun) == 1)):
            before, held = (begun[-1].state, begun[-1].everyone) if begun else (state, everyone)
            trusting = ahead and t != careful
            try:
                begun.append((yield from _begin(layout, population, method, plan, before, t, held, sizes, trusting)))
            except Exception:
                if not trusting:
                    raise
                careful = t  # it is computed again when the round before it is settled
                continue
            t += 1
        oldest = begun.pop(0)
        if oldest.doubtful:
            begun, t, careful = [], oldest.t, oldest.t
            continue
        finished = yield from _settled(layout, population, method, plan, oldest, largest)
        if finished.evaluation is not None:
            judged = finished.evaluation.only(plan.judged)
            baseline = check_explosion(judged, baseline, plan.explosion, finished.number, oldest.norms)
            if plan.selects and not plan.alone:
                check_judged(finished.evaluation, plan.metrics, plan.judged)
        state, everyone, largest = oldest.state, oldest.everyone, max(largest, finished.step_norm or 0.0)
        yield finished


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


def _begin(
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
    state = yield from _play(layout, population, method, plan, before, t, tally, everyone, sizes, trusting)
    after = {**everyone, **tally.kept} if tally.kept else everyone
    begun = BegunRound.of(layout, t, before, state, tally, after)
    if trusting and plan.tests and plan.evaluates(t + 1):
        later: Callable[[], Evaluation] = yield Assess(state.model, plan.evaluation_reference, later=True)
        return replace(begun, evaluation=later)
    return begun


def _settled(
    layout: Layout,
    population: Population,
    method: Method,
    plan: Plan,
    begun: BegunRound,
    largest: float,
) -> Generator[Event, Any, FinishedRound]:
    """The finished round, with its evaluation. Raises if its model, weights, reports or step show divergence."""
    t, before, state, tally = begun.t, begun.before, begun.state, begun.tally
    step, norms = begun.step, begun.norms
    if not begun.finite:
        where = f"{yield from _worst_task(before, plan)}{suspect(norms)}".strip()
        raise diverged(f"After round {t + 1} the model is", where)
    if not bool(state.weights.isfinite().all()):
        raise diverged(f"After round {t + 1} the task weights are", suspect(norms).strip())
    entries = _noted(method, state)
    if not all(map(math.isfinite, entries.get("report", ()))):
        raise diverged(f"In round {t + 1} the reported losses are", suspect(norms).strip())
    check_step(layout, before.model, step, largest, plan.screening.max_jump, t + 1, norms)
    evaluation: Evaluation | None = None
    validation: Mapping[str, Any] | None = None
    if plan.evaluates(t + 1):
        evaluation = None if begun.evaluation is None else begun.evaluation()
        evaluation, validation = yield from evaluated(layout, population, plan, state.model, t, evaluation)
    return FinishedRound(
        number=t + 1,
        state=state,
        # A method that computes its weights within the round puts them into the record.
        weights=tuple(float(w) for w in state.record.get("weights", before.weights)),
        downlink_bytes=tally.traffic.down,
        uplink_bytes=tally.traffic.up,
        exchanges=tally.exchanges,
        evaluation=evaluation,
        refused=tuple(tally.refused),
        attempts=tally.attempts,
        kept=tally.kept,
        cohort=tally.cohort(norms) if plan.lists else None,
        step_norm=step,
        validation=validation,
        **entries,
    )


def _noted(method: Method, state: State) -> dict[str, Any]:
    """The method's entries for the history."""
    try:
        return noted(state.record)
    except ValueError as error:
        raise InputError(f"Method '{method.label}': in the State's record {error}.") from None


def evaluated(
    layout: Layout, population: Population, plan: Plan, model: Tensor, t: int, evaluation: Evaluation | None = None
) -> Generator[Event, Any, tuple[Evaluation | None, Mapping[str, Any] | None]]:
    """The model after round t, from 0: on the test examples, and at the clients where these hold out examples.

    `evaluation` is that on the test examples, where it was computed before.
    """
    if plan.tests and evaluation is None:
        evaluation = yield Assess(model, plan.evaluation_reference)
    if not plan.validates:
        return evaluation, None
    place = plan.seed, t, plan.local_in(t)
    found = yield from validation_round(layout, plan.validates, population, plan.screening, model, place, plan.metrics)
    if evaluation is None:
        evaluation = found.overall(plan.evaluation_reference, plan.judged)
    return evaluation, found.as_dict(plan.evaluation_reference, plan.judged)


def _play(
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
                raise diverged(what, (yield from _worst_task(state, plan))) from None
            tries = "attempt" if tally.attempts == 1 else "attempts"
            raise TooFewReplies(f"Round {t + 1}, after {tally.attempts} {tries} (`server.attempts`): {few}") from None


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


def _worst_task(state: State, plan: Plan) -> Generator[Event, Any, str]:
    """The task with the largest loss at the last good model, where a divergence most likely began."""
    if not plan.tests:
        return ""
    evaluation: Evaluation = yield Assess(state.model, plan.evaluation_reference)
    worst = worst_task(evaluation)
    return f"At the last good model task '{worst.name}' has the largest test loss, {worst.loss:.4g}."


def simulate(
    engine: Engine, method: Method, plan: Plan, state: State | None = None, start: int = 0
) -> Iterator[FinishedRound]:
    """Run rounds `start + 1` … T on an engine and yield each as it ends."""
    state = initial_state(engine, method, plan.seed) if state is None else state.to(engine.device)
    population, ahead = engine.population, engine.ahead
    run = rounds(engine.layout, population, method, plan, state, start, sizes=engine.sizes, ahead=ahead)
    for _, finished in simulate_together(engine, [run]):
        if isinstance(finished, FedHVError):
            raise finished
        yield finished


def simulate_together(
    engine: Engine, runs: Sequence[Generator[Event, Any, None]], between: Callable[[], None] = lambda: None
) -> Iterator[tuple[int, FinishedRound | FedHVError]]:
    """Advance several runs in step, so that the engine can compute their requests together.

    `between` is called after all rounds that have ended together were yielded, before the next ones start.

    Yields the number of a run and its finished round, or at the end of a failed run its error. A run that diverges does
    not stop the others. The runs may have different methods.
    """
    waiting: dict[int, Event] = {}
    seconds, warm_up, shared = [0.0] * len(runs), [0.0] * len(runs), [1] * len(runs)
    for i, run in enumerate(runs):
        _advance(waiting, i, run, None)
    while waiting:
        ended = False
        for i, event in list(waiting.items()):
            if isinstance(event, FinishedRound):
                ended = True
                clock = round(seconds[i], 6), round(warm_up[i], 6), shared[i]
                seconds[i], warm_up[i], shared[i] = 0.0, 0.0, 1
                yield i, replace(event, seconds=clock[0], warm_up=clock[1], shared=clock[2])
                _advance(waiting, i, runs[i], None)
            elif isinstance(event, FedHVError):
                del waiting[i]
                yield i, event
        if ended:
            between()
        began, present = time.perf_counter(), list(waiting)
        asks = {i: event for i, event in waiting.items() if isinstance(event, Call)}
        with gpu_memory():
            replies = engine.ask_together(list(asks.values()))
            answers: dict[int, Any] = dict(zip(asks, replies, strict=True))
            for i, event in waiting.items():
                if isinstance(event, Assess):
                    found = engine.begin_evaluation(event.model, event.reference)
                    answers[i] = found if event.later else found()
            for i, answer in answers.items():
                _advance(waiting, i, runs[i], answer)
        spent, warmed = time.perf_counter() - began, engine.warmed_up()
        for i in present:  # runs that were computed together share the time equally
            seconds[i] += max(spent - warmed, 0.0) / len(present)
            warm_up[i] += warmed / len(present)
            shared[i] = max(shared[i], len(present))


def _advance(waiting: dict[int, Event], i: int, run: Generator[Event, Any, None], answer: Any) -> None:
    try:
        waiting[i] = run.send(answer)
    except StopIteration:
        waiting.pop(i, None)
    except FedHVError as error:
        waiting[i] = error
