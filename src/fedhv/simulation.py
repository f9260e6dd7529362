"""The round loop: sample a cohort, let the method talk to it, evaluate, count what was sent."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fedhv.cohort import Cohort, LocalTraining, sample_cohort
from fedhv.communication import Traffic, traffic
from fedhv.engines.base import Engine
from fedhv.messages import Replies, Request
from fedhv.methods.base import Method, State, drive
from fedhv.metrics import Evaluation
from fedhv.parameters import initial_model
from fedhv.random import Purpose, torch_seed


@dataclass(frozen=True)
class Plan:
    """What a run does, apart from problem and method.

    Attributes:
        rounds: T.
        participants: M.
        local: How clients train.
        evaluate_every: Evaluate after every so many rounds, and after the last; 0 only after the last.
        evaluation_reference: r_eval, the common reference of the evaluation hypervolume.
        seed: Of initialisation, cohorts, minibatches and everything else that is random in a run.
    """

    rounds: int
    participants: int
    local: LocalTraining
    evaluate_every: int = 1
    evaluation_reference: float = 3.0
    seed: int = 0


@dataclass(frozen=True)
class Round:
    """One finished round, numbered from 1: the state after it and what it used and cost."""

    number: int
    state: State
    weights: tuple[float, ...]
    traffic: Traffic
    exchanges: int
    seconds: float
    evaluation: Evaluation | None

    def as_dict(self) -> dict[str, Any]:
        """One line of the history. `weights` are those that the round used, not those that it found."""
        record: dict[str, Any] = {"round": self.number, **self.state.record, "weights": list(self.weights)}
        record |= {
            "downlink_bytes": self.traffic.down,
            "uplink_bytes": self.traffic.up,
            "exchanges": self.exchanges,
            "seconds": round(self.seconds, 6),
        }
        return record | ({} if self.evaluation is None else {"evaluation": self.evaluation.as_dict()})


class Courier:
    """Carries a method's requests to one cohort and counts what travels."""

    def __init__(self, engine: Engine, cohort: Cohort) -> None:
        self.engine, self.cohort = engine, cohort
        self.traffic = Traffic()
        self.exchanges = 0

    def __call__(self, request: Request) -> Replies:
        """The cohort's answers."""
        self.traffic += traffic(request, self.engine.layout, len(self.cohort))
        self.exchanges += 1
        return self.engine.ask(request, self.cohort)


def initial_state(engine: Engine, method: Method, seed: int) -> State:
    """Round 0: the model's own initialisation and uniform weights."""
    theta = initial_model(engine.problem.model, torch_seed(seed, Purpose.MODEL))
    return method.start(theta.to(engine.device), len(engine.problem.tasks))


def simulate(engine: Engine, method: Method, plan: Plan, state: State | None = None, start: int = 0) -> Iterator[Round]:
    """Run rounds `start + 1` … T and yield each as it ends.

    Every draw is a function of the seed and the round, so starting from the state after round `start` gives
    what an uninterrupted run gives.
    """
    state = initial_state(engine, method, plan.seed) if state is None else state.to(engine.device)
    population = len(engine.problem.clients)
    for t in range(start, plan.rounds):
        began = time.perf_counter()
        cohort = sample_cohort(plan.seed, t, population, plan.participants, plan.local)
        courier = Courier(engine, cohort)
        before, state = state, drive(method.round(state), courier)
        due = t + 1 == plan.rounds or (plan.evaluate_every > 0 and (t + 1) % plan.evaluate_every == 0)
        evaluation = engine.evaluate(state.model, plan.evaluation_reference) if due else None
        yield Round(
            number=t + 1,
            state=state,
            # A method that finds its weights within the round says so in the record.
            weights=tuple(float(w) for w in state.record.get("weights", before.weights)),
            traffic=courier.traffic,
            exchanges=courier.exchanges,
            seconds=time.perf_counter() - began,
            evaluation=evaluation,
        )
