"""A run's scores at its clients: mean, worst decile and spread for every task, from the last round that has them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedhv.protocol.evaluation import ACCURACY, OverClients
from fedhv.simulation.record import Round
from fedhv.support.numbers import is_number

KEYS = ("mean", "worst_decile", "deviation")


def over_clients(rounds: Sequence[Round], tasks: Sequence[str]) -> tuple[dict[str, Any], ...]:
    """One entry per task: `task`, `score`, `clients`, `mean`, `worst_decile` and `deviation`."""
    last = next((each.validation for each in reversed(rounds) if each.validation), None)
    if last is None:
        return ()
    given = last.get("over_clients")
    if isinstance(given, list):
        return tuple(_entry(each) for each in given if isinstance(each, Mapping) and is_number(each.get("mean")))
    return tuple(_of_accuracies(last, tasks))


def _entry(given: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {key: float(given[key]) if is_number(given.get(key)) else None for key in KEYS}
    return {
        "task": str(given.get("task", "")),
        "score": str(given.get("score", "accuracy")),
        "clients": int(given.get("clients", 0)),
        **numbers,
    }


def _of_accuracies(validation: Mapping[str, Any], tasks: Sequence[str]) -> list[dict[str, Any]]:
    """For histories that have only what every client found."""
    found = validation.get("clients")
    rows = found.get("accuracy") if isinstance(found, Mapping) else None
    if not isinstance(rows, list):
        return []
    made = []
    for i, task in enumerate(tasks):
        values = [float(row[i]) for row in rows if len(row) > i and is_number(row[i]) and math.isfinite(row[i])]
        if values:
            over = OverClients.of(task, ACCURACY, False, values)
            made.append({key: getattr(over, key) for key in ("task", "score", "clients", *KEYS)})
    return made
