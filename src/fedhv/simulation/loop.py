"""The round loop of one run: play a round, check the new state, evaluate it, hand out the record."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from typing import Any

from torch import Tensor

from fedhv.methods.base import Method, State
from fedhv.problem.parameters import Layout
from fedhv.protocol.evaluation import Evaluation
from fedhv.protocol.memories import Kept
from fedhv.simulation.attempts import Population, Sizes, where_worst
from fedhv.simulation.begun import BegunRound, begin_round
from fedhv.simulation.divergence import check_explosion, check_step, suspect
from fedhv.simulation.events import Assess, Event, FinishedRound
from fedhv.simulation.plan import Plan
from fedhv.simulation.record import noted
from fedhv.simulation.selection import check_judged
from fedhv.simulation.validation import validation_round
from fedhv.support.errors import InputError, diverged


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
    keep, where a run continues from a checkpoint. `sizes` is asked where cohorts are drawn by size. `largest` is the
    norm of the longest step up to `start`.

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
                new = yield from begin_round(layout, population, method, plan, before, t, held, sizes, trusting)
            except Exception:
                if not trusting:
                    raise
                careful = t  # it is computed again when the round before it is settled
                continue
            begun.append(new)
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
        where = f"{yield from where_worst(before, plan)}{suspect(norms)}".strip()
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
