"""Rounds of a setting on one engine, from the source tree that is first in the module path; several in a turn.

python tree_peer.py SETTING METHOD ENGINE ROUNDS
"""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import import_module
from itertools import count, islice
from typing import Any

import torch
from messages import turns

FAR = 1000.0
"""A reference above all losses; the cost of a round does not depend on it."""


def found(name: str, *modules: str) -> Any:
    """A function of the tree, from the first of these modules that it has: trees of different age have it elsewhere."""
    for module in modules:
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise SystemExit(f"The tree should have {name} in one of {', '.join(modules)}. Found none.")


def main() -> None:
    setting, method, engine, together = sys.argv[1:]
    setting = found("load_setting", "fedhv.runs.config", "fedhv.config")(setting, [])
    choose_engine = found("choose_engine", "fedhv.engines")
    initial_state = found("initial_state", "fedhv.simulation.rounds", "fedhv.simulation")
    simulate = found("simulate", "fedhv.simulation.rounds", "fedhv.simulation")
    problem = found("resolve", "fedhv.runs.resolve", "fedhv.resolve")(setting)[1]
    chosen = setting.method(method)
    if found("takes_reference", "fedhv.methods.base")(chosen):
        chosen = found("with_reference", "fedhv.methods.base")(chosen, (FAR,) * len(problem.tasks))
    plan = replace(setting.plan(chosen, seed=0), evaluate_every=0)
    torch.set_num_threads(1)
    with choose_engine(engine, "cpu", "auto", problem, plan).make(problem) as made:
        state, numbers = initial_state(made, chosen, plan.seed), count()
        for _ in turns():
            for number in islice(numbers, int(together)):
                # A plan that does not end with this round, which would be evaluated.
                state = next(simulate(made, chosen, replace(plan, rounds=number + 2), state, number)).state


if __name__ == "__main__":
    main()
