"""What server, nodes and the simulator share: the embedded benchmark, divided among a number of nodes."""

from __future__ import annotations

from fedhv import FedHV
from fedhv.problem.problem import Problem
from fedhv.runs.resolve import resolve

METHOD = FedHV(reference=(2.6, 2.7), local_lr=0.3, server_lr=1.2)
OVERRIDE = ["training.local_steps=5", "training.batch_size=32", "evaluation.every=1"]


def problem(nodes: int) -> Problem:
    """`digits` with one client for every node."""
    changes = [f"federation.clients={nodes}", f"federation.participants={nodes}", "federation.samples_per_client=100"]
    return resolve("digits", changes)[1]
