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


def load_memory(state: RecordDict, content: RecordDict, cohort: Cohort, device: torch.device | str = "cpu") -> Memory:
    """The node's memory of the round and run of a message."""
    memory = Memory()
    for scope, mark in _marks(content, cohort).items():
        name = f"{KEPT}-{scope}"
        if name in state.array_records and dict(state.config_records[f"{name}-mark"]) == mark:
            kept = {key: torch.from_numpy(array.numpy()).to(device) for key, array in state.array_records[name].items()}
            getattr(memory, scope).update(kept)
    return memory


def save_memory(state: RecordDict, content: RecordDict, cohort: Cohort, memory: Memory) -> None:
    """Write the node's memory; it replaces that of an earlier round or run."""
    for scope, mark in _marks(content, cohort).items():
        name, kept = f"{KEPT}-{scope}", getattr(memory, scope)
        if kept:
            arrays = {key: Array(value.detach().cpu().contiguous().numpy()) for key, value in kept.items()}
            state[name], state[f"{name}-mark"] = ArrayRecord(arrays), ConfigRecord(mark)
        else:
            state.pop(name, None)
            state.pop(f"{name}-mark", None)


def _marks(content: RecordDict, cohort: Cohort) -> dict[str, dict[str, Any]]:
    run = {"run": take(config_of(content), "run", str), "seed": int(cohort.seed)}
    return {"round": {"round": int(cohort.round), **run}, "run": run}
