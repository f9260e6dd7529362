"""Several learning rates of every method in one study, and the best of each, with how it was chosen."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedhv.methods import Method
from fedhv.runs.record import Run
from fedhv.runs.variants import Variant
from fedhv.support.errors import InputError
from fedhv.support.numbers import is_number


@dataclass(frozen=True)
class Choice:
    """The runs at each method's best local learning rate.

    Attributes:
        runs: In the order of the study.
        how: How the rates were chosen, in one sentence.
    """

    runs: tuple[Run, ...]
    how: str


def at_rates(methods: Sequence[Method], rates: Sequence[float]) -> list[Variant]:
    """Every method with every local learning rate."""
    if not rates or not all(is_number(rate) and 0 < rate < math.inf for rate in rates) or len(set(rates)) < len(rates):
        raise InputError(f"`local_lrs` should be positive numbers, none twice. Found {list(rates)}.")
    return [
        Variant(f"{method.label}-local_lr-{rate:g}".replace(":", "-"), replace(method, local_lr=float(rate)))
        for method in methods
        for rate in rates
    ]


def best_rates(runs: Sequence[Run]) -> Choice:
    """For every method the runs at the rate with the best MeanAcc over seeds: on held-out examples if there are any."""
    groups: dict[str, dict[float, list[Run]]] = {}
    for run in runs:
        groups.setdefault(run.method, {}).setdefault(float(run.parameters["local_lr"]), []).append(run)
    held = all(_validated(run) is not None for run in runs)
    chosen = {name: max(own, key=lambda rate: _mean(own[rate], held)) for name, own in groups.items()}
    found = ", ".join(f"{name} {rate:g}" for name, rate in chosen.items())
    tried = ", ".join(f"{rate:g}" for rate in sorted({rate for own in groups.values() for rate in own}))
    where = (
        "the examples that clients hold out"
        if held
        else "the test examples themselves, which flatters every method; set federation.validation=0.2"
    )
    return Choice(
        tuple(run for run in runs if float(run.parameters["local_lr"]) == chosen[run.method]),
        f"Local learning rates: {found}; the best MeanAcc of {tried} for each method, chosen on {where}.",
    )


def _validated(run: Run) -> float | None:
    """MeanAcc on held-out examples at the last evaluation, if there are any."""
    validation = next((each.validation for each in reversed(run.rounds) if each.validation is not None), None)
    value = None if validation is None else validation.get("mean_accuracy")
    return None if value is None else float(value)


def _mean(runs: Sequence[Run], held: bool) -> float:
    return statistics.fmean((_validated(run) or 0.0) if held else run.summary.mean_accuracy for run in runs)
