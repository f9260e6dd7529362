"""Several learning rates of every method in one study, and the best of each, with how it was chosen."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedhv.methods import Method
from fedhv.protocol.evaluation import Evaluation
from fedhv.runs.record import Run
from fedhv.runs.variants import Variant
from fedhv.simulation.selection import selected_by, selection_score
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
    """For every method the runs at the rate with the best scores over seeds, on held-out examples if there are any.

    Scores of different kinds are added as in the choice of a model (`selection_score`), in the units of one evaluation.
    """
    groups: dict[str, dict[float, list[Run]]] = {}
    for run in runs:
        groups.setdefault(run.method, {}).setdefault(float(run.parameters["local_lr"]), []).append(run)
    held = all(_validated(run) is not None for run in runs)
    first = next(each.evaluation for each in runs[0].rounds if each.evaluation is not None)

    def score(own: Sequence[Run]) -> float:
        return statistics.fmean(
            selection_score((_validated(run) if held else None) or run.summary, first) for run in own
        )

    chosen = {name: max(own, key=lambda rate: score(own[rate])) for name, own in groups.items()}
    found = ", ".join(f"{name} {rate:g}" for name, rate in chosen.items())
    tried = ", ".join(f"{rate:g}" for rate in sorted({rate for own in groups.values() for rate in own}))
    where = (
        "the examples that clients hold out"
        if held
        else "the test examples themselves, which makes the scores optimistic; set federation.validation=0.2"
    )
    return Choice(
        tuple(run for run in runs if float(run.parameters["local_lr"]) == chosen[run.method]),
        f"Local learning rates: {found}; the best {selected_by(first)} of {tried} for each method, chosen on {where}.",
    )


def _validated(run: Run) -> Evaluation | None:
    """The run's model on held-out examples, if there are any."""
    return None if run.summary.selection is None else run.summary.selection.validation
