"""The replay of a run from its configuration. Every draw is a function of the seed, so its models are the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from fedhv.engines import Choice, choose_engine
from fedhv.engines.base import Engine
from fedhv.methods import make_method
from fedhv.methods.base import State, with_reference
from fedhv.simulation.rounds import simulate
from fedhv.support.errors import FedHVError, InputError
from fedhv.theory.diagnosis.reading import FedHVRun

TOLERANCE = 1e-2
"""The tolerance for rounding differences between machines, which training amplifies. Larger ones are an error."""


def engine_of(run: FedHVRun, device: str = "auto") -> tuple[Choice, list[str]]:
    """The run's engine, device and precision, if they are available."""
    asked = {key: str(run.record.machine.get(key, "auto")) for key in ("engine", "device", "precision")}
    if device != "auto":
        asked |= {"device": device, "precision": "auto"}
    try:
        return choose_engine(asked["engine"], asked["device"], asked["precision"]), []
    except InputError as error:
        return choose_engine(device=device), [f"The replay does not use the run's machine: {error}"]


def replay(run: FedHVRun, engine: Engine) -> Iterator[tuple[int, State, float]]:
    """(t, the state after t rounds, the largest difference from the history so far), t = 0 … T."""
    method = with_reference(make_method(run.record.method, run.record.parameters), run.reference)
    # With all rounds of the setting, on which the schedule of the rate depends; the history may have fewer.
    plan = replace(run.setting.plan(method, run.record.seed), evaluate_every=0, tests=False)
    differs = 0.0
    yield 0, method.start(run.start.model.to(engine.device), len(run.tasks)), differs
    for finished in islice(simulate(engine, method, plan), run.rounds):
        t = finished.number - 1
        for was, now in ((run.reports[t], finished.report), (run.weights[t], finished.weights)):
            differs = max(differs, float((np.abs(np.array(now) - was) / np.abs(was).max()).max()))
        if not differs <= TOLERANCE:
            raise FedHVError(
                f"The replay differs from the history by {differs:.2g} (relative) in round {finished.number}: the "
                "data, the code or the machine are not those of the run. Diagnose its checkpoints, without --replay."
            )
        yield finished.number, finished.state, differs
