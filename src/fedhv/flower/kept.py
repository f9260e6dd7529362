"""What a client keeps until the round or the run ends, in Flower's state of its node."""

from __future__ import annotations

from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedhv.flower.records import config_of, take
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.script import Memory

KEPT = "fedhv-kept"
"""Records of a node's memory in Flower's node state, until the round or the run ends."""

RUN, BEFORE = f"{KEPT}-run", f"{KEPT}-before"
"""What a node keeps until the run ends, and what that was before the last attempt at a round."""


def load_memory(state: RecordDict, content: RecordDict, cohort: Cohort, device: torch.device | str = "cpu") -> Memory:
    """The node's memory of the round and run of a message."""
    memory, marks = Memory(), _marks(content, cohort)
    _begin_attempt(state, content, marks["run"])
    for scope, mark in marks.items():
        name = f"{KEPT}-{scope}"
        if name in state.array_records and dict(state.config_records[f"{name}-mark"]) == mark:
            kept = {key: torch.from_numpy(array.numpy()).to(device) for key, array in state.array_records[name].items()}
            getattr(memory, scope).update(kept)
    return memory


def save_memory(state: RecordDict, content: RecordDict, cohort: Cohort, memory: Memory) -> None:
    """Write the node's memory; it replaces that of an earlier round or run."""
    for scope, mark in _marks(content, cohort).items():
        kept = getattr(memory, scope)
        arrays = {key: Array(value.detach().cpu().contiguous().numpy()) for key, value in kept.items()}
        _set(state, f"{KEPT}-{scope}", ArrayRecord(arrays) if kept else None, mark)


def _begin_attempt(state: RecordDict, content: RecordDict, now: dict[str, Any]) -> None:
    """Undo what an attempt has changed that was not counted, as in the simulation.

    A node cannot know whether an attempt had enough replies, so later messages have the numbers of those that had not.
    """
    last = dict(state.config_records.get(f"{RUN}-mark", {}))
    if last == now:
        return
    same_run = {**last, "attempt": now["attempt"]} == now
    undo: Any = config_of(content).get("dropped", [])
    if same_run and last["attempt"] in undo:
        _set(state, RUN, state.array_records.get(BEFORE), now)
    elif same_run:
        _set(state, BEFORE, state.array_records.get(RUN), now)
        _set(state, RUN, state.array_records.get(RUN), now)
    else:
        _set(state, BEFORE, None, now)


def _set(state: RecordDict, name: str, record: ArrayRecord | None, mark: dict[str, Any]) -> None:
    if record is None:
        state.pop(name, None)
        state.pop(f"{name}-mark", None)
    else:
        state[name], state[f"{name}-mark"] = record, ConfigRecord(mark)


def _marks(content: RecordDict, cohort: Cohort) -> dict[str, dict[str, Any]]:
    config = config_of(content)
    run = {"run": take(config, "run", str), "seed": int(cohort.seed), "attempt": take(config, "attempt", int)}
    return {"round": {"round": int(cohort.round), **run}, "run": run}
