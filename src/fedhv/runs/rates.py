"""Several learning rates of every method in one study, and the best of each, with how it was chosen."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fedhv.methods import Method
from fedhv.protocol.evaluation import Evaluation
from fedhv.runs.defaults import BASELINES
from fedhv.runs.rates_file import ChosenRate, TriedRate
from fedhv.runs.record import Run
from fedhv.runs.variants import Variant
from fedhv.simulation.selection import selected_by, selection_score
from fedhv.support.errors import Diverged, InputError
from fedhv.support.numbers import is_number, short


@dataclass(frozen=True)
class Choice:
    """The runs at each method's best local learning rate, and those of baselines.

    Attributes:
        runs: In the order of the study.
        how: How the rates were chosen, in one sentence; a second one names rates that diverged.
        rates: The choice for every method.
    """

    runs: tuple[Run, ...]
    how: str
    rates: Mapping[str, ChosenRate]


def at_rates(methods: Sequence[Method], rates: Sequence[float]) -> list[Variant]:
    """Every method with every local learning rate."""
    if not rates or not all(is_number(rate) and 0 < rate < math.inf for rate in rates) or len(set(rates)) < len(rates):
        raise InputError(f"`local_lrs` should be positive numbers, none twice. Found {list(rates)}.")
    return [Variant(_name(method, rate), replace(method, local_lr=float(rate))) for method in methods for rate in rates]


def _name(method: Method, rate: float) -> str:
    return f"{method.label}-local_lr-{short(float(rate))}".replace(":", "-")


def best_rates(runs: Sequence[Run], methods: Sequence[Method], rates: Sequence[float], seeds: Sequence[int]) -> Choice:
    """For every method the runs at the rate with the best scores over seeds, on held-out examples if there are any.

    Scores of different kinds are added as in the choice of a model (`selection_score`), in the units of one evaluation.
    A rate counts if it has a run of every seed: the runs that are missing have diverged. Raises `Diverged` for methods
    without such a rate.
    """
    found: dict[tuple[str, float], list[Run]] = {}
    for run in runs:
        if run.method not in BASELINES:
            found.setdefault((run.method, float(run.parameters["local_lr"])), []).append(run)
    whole = {key: own for key, own in found.items() if {run.seed for run in own} >= set(seeds)}
    _check_every_method(methods, rates, whole)
    judged = [run for own in whole.values() for run in own]
    held = all(_validated(run) is not None for run in judged)
    first = next((each.evaluation for each in judged[0].rounds if each.evaluation is not None), judged[0].summary)

    def score(own: Sequence[Run]) -> float | None:
        if not own:
            return None
        return statistics.fmean(
            selection_score((_validated(run) if held else None) or run.summary, first) for run in own
        )

    tried = {
        method.label: tuple(
            TriedRate(float(rate), _name(method, rate), score(whole.get((method.label, float(rate)), ())))
            for rate in rates
        )
        for method in methods
    }
    if held:
        where = "the examples that clients hold out"
    elif all(run.table("setting", "evaluation").get("on") == "validation" for run in judged):
        where = "the examples that clients hold out, which makes their scores here optimistic"
    else:
        where = "the test examples themselves, which makes the scores optimistic; set federation.validation=0.2"
    how = f"the best {selected_by(first)} of {_list(sorted(rates))} for each method, chosen on {where}"
    chosen = {name: ChosenRate(_best(own), how, own) for name, own in tried.items()}
    shown = tuple(
        run for run in runs if run.method not in chosen or float(run.parameters["local_lr"]) == chosen[run.method].rate
    )
    return Choice(shown, choice_sentence(chosen), chosen)


def choice_sentence(chosen: Mapping[str, ChosenRate]) -> str:
    """The rates of methods and how they were chosen; which rates are equally good, and which diverged."""
    said = []
    for how in dict.fromkeys(each.how for each in chosen.values()):
        own = ", ".join(f"{name} {short(each.rate)}" for name, each in chosen.items() if each.how == how)
        said.append(f"Local learning rates: {own}; {how}.")
    level = {name: [t.rate for t in each.tried if t.score == _top(each.tried)] for name, each in chosen.items()}
    lost = {name: [t.rate for t in each.tried if t.score is None] for name, each in chosen.items()}
    if equal := [f"{name} {_list(own)}" for name, own in level.items() if len(own) > 1]:
        said.append(f"Equal scores, of which the first is taken: {'; '.join(equal)}.")
    if gone := [f"{name} {_list(own)}" for name, own in lost.items() if own]:
        said.append(f"Diverged: {'; '.join(gone)}.")
    return " ".join(said)


def _best(tried: Sequence[TriedRate]) -> float:
    """The first of the rates with the best score."""
    return next(each.rate for each in tried if each.score == _top(tried))


def _top(tried: Sequence[TriedRate]) -> float:
    return max(each.score for each in tried if each.score is not None)


def _check_every_method(
    methods: Sequence[Method], rates: Sequence[float], whole: Mapping[tuple[str, float], object]
) -> None:
    lacking = [m.label for m in methods if not any((m.label, float(rate)) in whole for rate in rates)]
    if lacking:
        raise Diverged(
            f"With every local learning rate ({_list(rates)}) a run of {' and of '.join(lacking)} diverged. "
            "Try smaller rates."
        )


def _list(rates: Sequence[float]) -> str:
    return ", ".join(short(float(rate)) for rate in rates)


def _validated(run: Run) -> Evaluation | None:
    """The run's model on held-out examples, if there are any."""
    return None if run.summary.selection is None else run.summary.selection.validation
