"""A node's app. Its plan, a JSON file that its own configuration names, says what it does in which round."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.clientapp.typing import ClientAppCallable

from fedhv.flower import client_app
from fedhv.problem.problem import Problem
from plays.problem import problem

OVERSIZE = 64_000_000


def load(context: Context) -> Problem:
    return problem(int(context.run_config["nodes"]))


def misbehave(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Do what the plan says for this round; without an entry, answer honestly."""
    plan = Path(str(context.node_config["plan"]))
    act = json.loads(plan.read_text()).get(message.metadata.group_id)
    if act == "hang":
        time.sleep(100_000)
    sent = {} if act is None else {name: array.numpy() for name, array in message.content["arrays"].items()}
    reply = call_next(message, context)
    content, kept = reply.content, plan.with_suffix(".npz")
    if act == "replay":  # what this node answered in round 1, once more
        old = np.load(kept)
        content["arrays"] = ArrayRecord({"model": Array(old["model"])})
        content["config"]["round"] = int(old["round"])
    elif message.metadata.group_id == "1":
        np.savez(kept, model=content["arrays"]["model"].numpy(), round=content["config"]["round"])
    if act == "poison":
        model = sent["model"] + 1000 * (content["arrays"]["model"].numpy() - sent["model"])
        content["arrays"] = ArrayRecord({"model": Array(model)})
    elif act == "nan":
        content["arrays"] = ArrayRecord({"model": Array(np.full_like(sent["model"], np.nan))})
    elif act == "lie":
        (name, values), *_ = content["metrics"].items()
        content["metrics"] = MetricRecord({**content["metrics"], name: [1e9] * len(values)})
    elif act == "oversize array":
        content["arrays"] = ArrayRecord({"model": Array(np.zeros(OVERSIZE // 4, np.float32))})
    elif act == "oversize record":
        content["note"] = ConfigRecord({"text": b"x" * OVERSIZE})
    return reply


app = client_app(load, device="cpu", mods=[misbehave])
