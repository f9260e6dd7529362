"""Rounds on an engine: one run, or several in step."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any

from fedhv.engines.base import Engine
from fedhv.engines.portions import gpu_memory
from fedhv.methods.base import Method, State
from fedhv.problem.initial import initial_model
from fedhv.problem.random import Purpose, torch_seed
from fedhv.protocol.exchange import Call
from fedhv.simulation.events import Assess, Event, FinishedRound
from fedhv.simulation.loop import rounds
from fedhv.simulation.plan import Plan
from fedhv.support.errors import FedHVError


def initial_state(engine: Engine, method: Method, seed: int) -> State:
    """Round 0: the model's own initialisation and uniform weights."""
    theta = initial_model(engine.problem.model, torch_seed(seed, Purpose.MODEL), engine.problem.norm)
    return method.start(theta.to(engine.device), len(engine.problem.tasks))


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
        with gpu_memory(device=engine.device):
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
